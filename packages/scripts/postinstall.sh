#!/bin/sh
# Runs after the package's files are installed, and after an aborted upgrade. It can run again.
set -e

# Finds the Python of this host for the virtual environment /opt/dnm.
find_python() {
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        for directory in /usr/bin /usr/local/bin; do
            candidate=$directory/$name
            [ -x "$candidate" ] || continue
            if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))'; then
                echo "$candidate"
                return
            fi
        done
    done
    echo "dnm: no Python from 3.11 to 3.14 in /usr/bin or /usr/local/bin: install python3.12" >&2
    return 1
}

python=$(find_python)
ln -sfn "$python" /opt/dnm/bin/python
printf 'home = %s\ninclude-system-site-packages = false\n' "${python%/*}" >/opt/dnm/pyvenv.cfg
# Compiles the bytecode now. Otherwise only a run as root could store it, and each run of another
# user would compile again until then.
/opt/dnm/bin/python -m compileall -q /opt/dnm/lib/site-packages

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    # Starts the timers that preinstall.sh has stopped.
    if [ -s /run/dnm-timers ]; then
        xargs -r systemctl start </run/dnm-timers || true
    fi
    rm -f /run/dnm-timers
fi

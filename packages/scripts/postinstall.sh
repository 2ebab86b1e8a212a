#!/bin/sh
# After the files of the package are there; also when an upgrade was given up. Can be repeated.
set -e

# /opt/dnm is a virtual environment for whichever Python this host has.
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
# Else the first run as root would leave such files, and every run of others would compile anew.
/opt/dnm/bin/python -m compileall -q /opt/dnm/lib/site-packages

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    # Those that preinstall.sh had stopped.
    if [ -s /run/dnm-timers ]; then
        xargs -r systemctl start </run/dnm-timers || true
    fi
    rm -f /run/dnm-timers
fi

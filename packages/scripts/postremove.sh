#!/bin/sh
# Runs after the package's files are removed. The argument is remove, purge, upgrade, ... (deb), or
# 1 for an upgrade and 0 for a removal (rpm).
set -e

case "$1" in
remove | purge | 0)
    rm -f /opt/dnm/bin/python /opt/dnm/pyvenv.cfg
    rmdir -p --ignore-fail-on-non-empty /opt/dnm/bin 2>/dev/null || true
    rmdir --ignore-fail-on-non-empty /usr/share/doc/dnm 2>/dev/null || true # rpm does not delete it
    # Deletes the files with which the end of a conversion starts a run (dnm.path).
    for name in converted_nodes.wake converted_nodes.ended; do
        rm -f "/var/lib/dynamic-node/$name" /var/lib/dynamic-node/*/"$name"
    done
    if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
    ;;
esac

# The registry and the history are never deleted: they record which nodes are lent and were lent.
if [ "$1" = purge ] && [ -e /var/lib/dynamic-node ]; then
    echo "dnm: /var/lib/dynamic-node and /etc/dynamic-node stay, with the registry and the history" >&2
fi

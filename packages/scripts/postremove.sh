#!/bin/sh
# After the files of the package are gone. deb: remove, purge, upgrade, ...; rpm: 1 on upgrade, else 0.
set -e

case "$1" in
remove | purge | 0)
    rm -f /opt/dnm/bin/python /opt/dnm/pyvenv.cfg
    rmdir -p --ignore-fail-on-non-empty /opt/dnm/bin 2>/dev/null || true
    rmdir --ignore-fail-on-non-empty /usr/share/doc/dnm 2>/dev/null || true # rpm leaves it
    # What wakes a run (dnm.path) wakes none any more; and when the last one ended.
    for name in converted_nodes.wake converted_nodes.ended; do
        rm -f "/var/lib/dynamic-node/$name" /var/lib/dynamic-node/*/"$name"
    done
    if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
    ;;
esac

# The record and the history are never removed: they say which nodes are lent, and were.
if [ "$1" = purge ] && [ -e /var/lib/dynamic-node ]; then
    echo "dnm: /var/lib/dynamic-node and /etc/dynamic-node stay, with the record of what was lent" >&2
fi

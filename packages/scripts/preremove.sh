#!/bin/sh
# Runs before the package's files are removed. The argument is upgrade or remove (deb), or 1 for an
# upgrade and 0 for a removal (rpm).
set -e

case "$1" in
upgrade | remove | deconfigure | 0) ;;
*) exit 0 ;; # upgrade by rpm: the new files are installed already
esac

case "$1" in
remove | 0)
    for wants in /etc/systemd/system/*.wants/dnm.timer /etc/systemd/system/*.wants/dnm@*.timer; do
        [ -L "$wants" ] || continue
        if [ -d /run/systemd/system ]; then systemctl stop "${wants##*/}" || true; fi
        systemctl disable "${wants##*/}" || true
    done
    # Warns about lent nodes. The registry stays, but without dnm no lent node is returned.
    for config in /etc/dynamic-node/dynamic_node_config.ini /etc/dynamic-node/*/dynamic_node_config.ini; do
        [ -f "$config" ] || continue
        lent=$(/opt/dnm/bin/dnm status --config "$config" -o json 2>/dev/null | /opt/dnm/bin/python -c '
import json, sys
print(*(node["node"] for node in json.load(sys.stdin)["nodes"]))' 2>/dev/null) || continue
        if [ -n "$lent" ]; then
            echo "dnm: these nodes of $config stay lent, because nothing returns them now: $lent" >&2
            echo "dnm: the registry stays; install dnm again to return them" >&2
        fi
    done
    ;;
esac

find /opt/dnm/lib -name __pycache__ -prune -exec rm -rf {} +

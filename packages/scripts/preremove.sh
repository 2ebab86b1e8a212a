#!/bin/sh
# Before the files of the package go. deb: upgrade VERSION, or remove; rpm: 1 on upgrade, else 0.
set -e

case "$1" in
upgrade | remove | deconfigure | 0) ;;
*) exit 0 ;; # rpm's upgrade: the new files are in their places already
esac

case "$1" in
remove | 0)
    for wants in /etc/systemd/system/*.wants/dnm.timer /etc/systemd/system/*.wants/dnm@*.timer; do
        [ -L "$wants" ] || continue
        if [ -d /run/systemd/system ]; then systemctl stop "${wants##*/}" || true; fi
        systemctl disable "${wants##*/}" || true
    done
    # A removal with nodes lent loses nothing, for the record stays; but nobody returns them.
    for config in /etc/dynamic-node/dynamic_node_config.ini /etc/dynamic-node/*/dynamic_node_config.ini; do
        [ -f "$config" ] || continue
        lent=$(/opt/dnm/bin/dnm status --config "$config" -o json 2>/dev/null | /opt/dnm/bin/python -c '
import json, sys
print(*(node["node"] for node in json.load(sys.stdin)["nodes"]))' 2>/dev/null) || continue
        if [ -n "$lent" ]; then
            echo "dnm: lent by $config, and nobody returns them now: $lent" >&2
            echo "dnm: their record stays; install dnm again to go on" >&2
        fi
    done
    ;;
esac

find /opt/dnm/lib -name __pycache__ -prune -exec rm -rf {} +

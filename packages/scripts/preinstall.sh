#!/bin/sh
# Before the files of the package come. deb: install, or upgrade VERSION; rpm: 1, or 2 on upgrade.
set -e

case "$1" in
upgrade | 2) ;;
*) exit 0 ;;
esac

# No run begins between old and new files. One that is at work goes on: at the worst it ends as by a
# kill, which the next run repairs.
if [ -d /run/systemd/system ]; then
    systemctl list-units --plain --no-legend 'dnm.timer' 'dnm@*.timer' | cut -d' ' -f1 >/run/dnm-timers
    xargs -r systemctl stop </run/dnm-timers || true
fi

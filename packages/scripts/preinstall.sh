#!/bin/sh
# Runs before the package's files are installed. The argument is install or upgrade (deb), or 1 for
# an installation and 2 for an upgrade (rpm).
set -e

case "$1" in
upgrade | 2) ;;
*) exit 0 ;;
esac

# Stops the timers, so that no run starts while files are replaced. An active run continues. In the
# worst case it fails as if it were killed, and the next run repairs this.
if [ -d /run/systemd/system ]; then
    systemctl list-units --plain --no-legend 'dnm.timer' 'dnm@*.timer' | cut -d' ' -f1 >/run/dnm-timers
    xargs -r systemctl stop </run/dnm-timers || true
fi

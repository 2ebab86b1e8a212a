#!/bin/sh
# Installs the Debian packages that the tests use, if they are missing: a real Slurm and munge,
# debootstrap for newer ones, kubectl, shellcheck, Prometheus' promtool, spin with a compiler, and
# others. Arguments are further programs; each is in the Debian package of the same name. If the
# script does not run as root, it prints the command to run and fails.
set -eu
missing=""
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
PATH="$PATH:/usr/sbin:/sbin"
need slurmctld slurmctld
need slurmd slurmd
need scontrol slurm-client
need munged munge
need debootstrap debootstrap
need kubectl kubernetes-client
need shellcheck shellcheck
need curl curl
need openssl openssl
need ip iproute2
need promtool prometheus
need spin spin
need gcc gcc
for one in "$@"; do need "$one" "$one"; done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "make test needs:$missing" >&2
    echo "install them, e.g.: sudo apt-get install --no-install-recommends$missing" >&2
    exit 1
fi
echo "installing the Debian packages$missing: a minute or two" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >/dev/null
# Keeps apt from starting services: the tests run their own daemons on loopback.
policy=/usr/sbin/policy-rc.d
[ -e "$policy" ] || { printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod +x "$policy"; trap 'rm -f "$policy"' EXIT; }
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing >/dev/null

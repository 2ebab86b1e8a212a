#!/bin/sh
# Shortens the output of pip-audit on standard input. Fails if it reports vulnerabilities; packages
# that it could not look up are only counted.
set -eu
said=$(cat)
skipped=$(printf '%s\n' "$said" | grep -c 'could not be audited' || true)
if printf '%s\n' "$said" | grep -Eq '^Found [0-9]+ known vulnerabilit'; then
    printf '%s\n' "$said" | grep -v 'could not be audited'
    exit 1
fi
if [ "$skipped" = 0 ] && ! printf '%s\n' "$said" | grep -q 'No known vulnerabilities found'; then
    echo "pip-audit failed: $said" | head -n 3
elif [ "$skipped" = 0 ]; then
    echo "pip-audit: no known vulnerabilities"
else
    echo "pip-audit: $skipped packages could not be looked up; no known vulnerabilities in the others"
fi

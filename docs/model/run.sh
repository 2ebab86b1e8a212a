#!/bin/sh
# Checks the model of two hosts, and that each mutant of it is found: `make model`.
# --quick does not search for cycles, which takes most of the time.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cp "$here/hosts.pml" .

check() { # name, what the model is built with, what the checker is, for how long it pays; NAME.out
    # shellcheck disable=SC2086
    spin -a $2 hosts.pml >/dev/null
    # shellcheck disable=SC2086
    gcc "${4:--O1}" -w -DCOLLAPSE -DNOCLAIM ${3:--DSAFETY} -o "$1" pan.c
    # An end is judged by the model itself.
    "./$1" -E -m2000000 ${3:+-l} >"$1.out" || true
}

holds() { # name, what it says, and what check needs
    check "$1" "$3" "${4:-}"
    if ! grep -q "errors: 0" "$1.out" || grep -q "Search not completed" "$1.out"; then
        cat "$1.out"
        exit 1
    fi
    echo "$1: $2: $(grep -o '[0-9]* states, stored' "$1.out"), no error"
}

is_found() { # mutant, how it is built
    check "$1" "-D$1 $2" "" -O0
    grep -q "errors: 1" "$1.out" || { echo "$1 is not found"; exit 1; }
    echo "$1: $(grep -o 'assertion violated.*' "$1.out" | head -1)"
}

holds safety "caps, owners and books, in every order of steps" ""
if [ "${1:-}" = --quick ]; then
    holds ends "who has nothing to do any more is at rest" "-DREST"
else
    holds rest "it comes to an end, and is at rest then" "-DREST" "-DNP"
fi
for mutant in MUTANT_WRITE MUTANT_ORDER MUTANT_LEDGER MUTANT_FENCE MUTANT_CLOCK; do
    is_found "$mutant" ""
done
is_found MUTANT_DEADLINE "-DREST"

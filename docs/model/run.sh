#!/bin/sh
# Checks the model of two hosts with Spin, and that Spin finds an error in each mutant: `make
# model`. --quick omits the search for cycles, which takes most of the time.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cp "$here/hosts.pml" .

check() { # NAME, options of spin, options of the checker, optimisation of gcc; writes NAME.out
    # shellcheck disable=SC2086
    spin -a $2 hosts.pml >/dev/null
    # shellcheck disable=SC2086
    gcc "${4:--O1}" -w -DCOLLAPSE -DNOCLAIM ${3:--DSAFETY} -o "$1" pan.c
    # -E: the model itself checks its end states.
    "./$1" -E -m2000000 ${3:+-l} >"$1.out" || true
}

holds() { # NAME, the property as text, options of spin, options of the checker
    check "$1" "$3" "${4:-}"
    if ! grep -q "errors: 0" "$1.out" || grep -q "Search not completed" "$1.out"; then
        cat "$1.out"
        exit 1
    fi
    echo "$1: $2: $(grep -o '[0-9]* states, stored' "$1.out"), no error"
}

is_found() { # MUTANT, options of spin
    check "$1" "-D$1 $2" "" -O0
    grep -q "errors: 1" "$1.out" || { echo "Spin finds no error in $1"; exit 1; }
    echo "$1: $(grep -o 'assertion violated.*' "$1.out" | head -1)"
}

holds safety "cap, owners and ledger are right in every order of steps" ""
if [ "${1:-}" = --quick ]; then
    holds ends "each end state is a steady state" "-DREST"
else
    holds rest "each execution ends in a steady state" "-DREST" "-DNP"
fi
for mutant in MUTANT_WRITE MUTANT_ORDER MUTANT_LEDGER MUTANT_FENCE MUTANT_CLOCK; do
    is_found "$mutant" ""
done
is_found MUTANT_DEADLINE "-DREST"

#!/bin/sh
# Checks the model of two hosts, and that each mutant of it is found: `make model`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cp "$here/hosts.pml" .

check() { # name, what the model is built with, what the checker is run with
    spin -a ${2:+"-D$2"} hosts.pml >/dev/null
    # shellcheck disable=SC2086
    gcc -O2 -w -DCOLLAPSE $3 -o "$1" pan.c
    # shellcheck disable=SC2086
    "./$1" -m2000000 $4 >"$1.out" || true
}

check safety "" "-DSAFETY -DNOCLAIM" ""
grep -q "errors: 0" safety.out || { cat safety.out; exit 1; }
grep -q "Search not completed" safety.out && { cat safety.out; exit 1; }
echo "safety: $(grep 'states, stored' safety.out | tr -s ' '), no error"
for mutant in MUTANT_WRITE MUTANT_ORDER MUTANT_LEDGER MUTANT_CLOCK; do
    check "$mutant" "$mutant" "-DSAFETY -DNOCLAIM" ""
    grep -q "errors: 1" "$mutant.out" || { echo "$mutant is not found"; exit 1; }
    echo "$mutant: $(grep -o 'assertion violated.*' "$mutant.out" | head -1)"
done

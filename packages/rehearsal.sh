#!/bin/sh
# Runs the rehearsal of docs/production.md with an installed dnm on an embedded cluster.
#   rehearsal.sh DNM INI
# DNM is the installed command. INI is a configuration with @PORT@ instead of YuniKorn's port. The
# variable LAB is the dnm command of a checkout, because no package contains the embedded cluster.
set -eu
dnm=$1
home=$(mktemp -d)
dir=$home/rehearsal
trap '$LAB sandbox down --dir "$dir" >/dev/null 2>&1 || true; rm -rf "$home"' EXIT

$LAB sandbox up --dir "$dir" --speed 20 >/dev/null
port=$(sed -n 's,.*server.*http://127.0.0.1:\([0-9]*\).*,\1,p' "$dir/kubeconfig" | head -1)
install -d -m 755 "$dir/site"
sed "s/@PORT@/$port/" "$2" >"$dir/site/dynamic_node_config.ini"
echo '{"dev": "root.anvil.services.dev"}' >"$dir/site/namespace_queue_paths.json"
export KUBECONFIG="$dir/kubeconfig" DNM_CONFIG="$dir/site/dynamic_node_config.ini"

echo "step 6: check"
"$dnm" check >"$home/check" || { cat "$home/check"; exit 1; }
"$dnm" nodes >/dev/null
"$dnm" plan >/dev/null
"$dnm" run

echo "step 7: observe"
"$dnm" test-load dev --wait 20s >/dev/null || [ $? -eq 1 ]
sleep 2
"$dnm" run
"$dnm" status >"$home/status"
grep "needs 1 of type a; 0 can be lent" "$home/status" || { cat "$home/status"; exit 1; }

echo "step 8: one node"
sed -i 's/^max_converted_nodes = .*/max_converted_nodes = 1/' "$DNM_CONFIG"
phases() { "$dnm" status -o json | sed -n 's/.*"phase": *"\([a-z]*\)".*/\1/p' | tr '\n' ' '; }
until_phases() {
    tries=0
    while [ "$(phases)" != "$1" ]; do
        tries=$((tries + 1))
        [ "$tries" -le 100 ] || { echo "not in phases '$1' after 100 runs"; "$dnm" status; exit 1; }
        "$dnm" run || [ $? -eq 75 ]
        sleep 1
    done
}
until_phases "serving "
"$dnm" test-load dev --delete
node=$("$dnm" status -o json | sed -n 's/.*"node": *"\([a-z0-9]*\)".*/\1/p' | head -1)
"$dnm" return "$node"
until_phases ""
"$dnm" history "$node" | grep -q "returned"

echo "step 9 and 10: health, report"
"$dnm" status --health
"$dnm" report >/dev/null
"$dnm" simulate --set max_converted_nodes=4 >/dev/null || [ $? -eq 1 ]
echo "the rehearsal passed with $("$dnm" --version)"

"""The edge to the site's `node-convert`, a program with the options `--set k8s`, `--set batch` and
`--list`. It starts converters, reads their output, and finds out how they ended, also in later
runs. run, cli and converters may import this package, and the sandbox its `processes`. It imports
model and host."""

"""The calls of the site's `node-convert`, a program with the options `--set k8s`, `--set batch` and
`--list`. This package starts converters, reads their output, and finds out how they ended, also in
later runs. run, cli and converters may import it, and the sandbox its `processes`. It imports model
and host."""

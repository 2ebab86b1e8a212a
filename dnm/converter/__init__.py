"""The edge to the site's `node-convert`, a program with the contract `--set k8s`, `--set batch` and
`--list`. It starts the converter, reads its output and learns how it ended, over several runs.
Import rules: run, cli and converters may import this package, and the sandbox its `processes`. It
imports model and host."""

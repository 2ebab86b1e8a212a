"""The edge to the site's `node-convert`, a program of the contract `--set k8s`, `--set batch`,
`--list`: its calls, their output and their end, over several runs.
Those that act or look (run, cli, converters) may import it, and the sandbox its `processes`; it
imports model and host.
"""

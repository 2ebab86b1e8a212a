"""The storm: the installed `dnm` command as a black box on the sandbox, in real time, struck by
everything that a site, a tenant, a kubelet, an API server and an administrator can do.

An episode is a world of its own: so many runs with blows, then calm. `blows_*.py` are the blows,
`judge.py` says what must never be; neither uses dnm's code, and `dnm` is known by its exit codes,
its output and what it does to the sandbox alone. `python -m tests.proof.storm --help`.
"""

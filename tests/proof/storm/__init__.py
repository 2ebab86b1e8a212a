"""The storm: the installed `dnm` command as a black box on the sandbox, in real time. Faults come
from the site, tenants, kubelets, the API server and the administrator.

An episode is a new world with a number of runs with faults, then some without. `blows_*.py` inject
the faults, `judge.py` lists the violations; neither uses dnm's code. They know `dnm` only by its
exit codes, output and effects on the sandbox. See `python -m tests.proof.storm --help`."""

"""The storm: the installed `dnm` command as a black box on the sandbox, in real time. Faults come
from the site, tenants, kubelets, the API server and the administrator.

An episode is a world of its own: a number of runs with faults, then calm. `blows_*.py` inject the
faults, `judge.py` lists the violations; neither uses dnm's code. They know `dnm` only by its exit
codes, output and effects on the sandbox. `python -m tests.proof.storm --help`.
"""

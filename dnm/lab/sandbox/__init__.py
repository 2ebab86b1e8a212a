"""An embedded cluster for trying dnm and for its tests: Kubernetes, YuniKorn and batch nodes as
state behind HTTP.
dnm meets it over HTTP alone; only the lab's verbs and demo import it; it imports model, host
and how a process is known (converter).
"""

"""An embedded cluster for trying dnm and for its tests: Kubernetes, YuniKorn and batch nodes as
state behind HTTP.
dnm meets it over HTTP alone; demo may import it, and cli what starts it; it imports model and how
a process is known (converter).
"""

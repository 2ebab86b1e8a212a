"""An embedded cluster for trying dnm and for its tests: Kubernetes, YuniKorn and batch nodes as
state behind HTTP.
dnm meets it over HTTP alone; demo and the verbs that start it may import it.
"""

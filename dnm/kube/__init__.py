"""The Kubernetes edge: credentials, one HTTP session, readers of pods and nodes, writes under
resourceVersion. JSON stays inside; values of model go in and out.
Those that act or look (run, cli, converters) may import it; it imports model, host, http and, from
demand, a pod's request.
"""

"""The Kubernetes edge: credentials, one HTTP session, readers of pods and nodes, writes under
resourceVersion. JSON stays inside; values of model go in and out.
Only run, cli and converters may import it. It imports model, host, http, the interface of queues
and, from demand, a pod's request.
"""

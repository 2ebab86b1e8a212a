"""The client of the Kubernetes API: credentials, one HTTP session, readers of pods and nodes,
writes under resourceVersion. Only this package sees JSON; its callers pass and get values of model.
Only run, cli and converters may import it. It imports model, host, http, the interface of queues
and, from demand, a pod's request."""

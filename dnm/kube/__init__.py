"""The client of the Kubernetes API: credentials, one HTTP session, readers of pods and nodes,
writes under resourceVersion. Callers pass and get values of model; no other package sees the JSON.
Only run, cli and converters may import it. It imports model, host, http, the interface of queues
and, from demand, a pod's request."""

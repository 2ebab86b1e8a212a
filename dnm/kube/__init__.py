"""The client of the Kubernetes API: credentials, one HTTP session, readers of pods and nodes, and
writes under resourceVersion. Callers pass and get values of `dnm.model`; only this package handles
the API's JSON. Only run, cli and converters may import it. It imports only model, host, http, the
interface of queues and, from demand, the sum of a pod's requests."""

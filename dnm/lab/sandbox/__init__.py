"""An embedded cluster for tests and to try dnm: Kubernetes, YuniKorn and batch nodes behind HTTP.
dnm reaches it only over HTTP. Only the lab's verbs and demo import it; it imports model, host and
the identity of processes (converter)."""

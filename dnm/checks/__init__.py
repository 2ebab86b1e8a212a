"""The checks of `dnm check`. Each check yields findings, values that the command prints. cli and
set_up may import it; it imports model, host, calendar, config, kube, kubelet, converter, queues,
demand, sizing, plan, run, and settings and sreport of converters."""

"""The part of YuniKorn that administrators use: its checks, and the commands `dnm queues`. checks
and the table of cli load it by its name. It imports model, host, calendar, config, kube,
converter, queues, yunikorn, demand, plan, record, run, findings of checks, and terminal of cli."""

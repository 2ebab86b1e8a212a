"""The code for terminals that all commands share: options, tables, lines, streams, signals,
completion. cli, look, act, manual, set_up and admin may import it; it imports model, calendar,
config, plan, record, run and verbs."""

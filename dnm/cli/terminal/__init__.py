"""The shared terminal parts of all commands: options, tables, lines, streams, signals, completion.
cli, look, act, manual and set_up may import it; it imports model, calendar, config, plan,
record, run and verbs.
"""

"""The shared terminal parts of all commands: options, tables, lines, streams, signals, completion.
cli, look, by_hand, set_up and act may import it; it imports model, calendar, config, plan, record
and registry of run.
"""

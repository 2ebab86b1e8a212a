"""What is known beforehand: events, their windows in UTC, and what of a calendar is in force. Pure.
Those that plan or show events (config, the rules of plan, verbs, run, cli) may import it; it
imports only model.
"""

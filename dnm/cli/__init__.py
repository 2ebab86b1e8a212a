"""The verbs: options, tables, JSON, exit codes. Nothing is decided here.
Nobody imports it; it imports all but the inside of the sandbox.
"""

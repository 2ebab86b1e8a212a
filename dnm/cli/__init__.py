"""The verbs: options, tables, JSON, exit codes. Nothing is decided here.
Nobody imports it; it imports all but http, slurm and the inside of converters and lab.
"""

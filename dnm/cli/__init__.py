"""The commands: options, tables, JSON, exit codes. Nothing is decided here.
No package imports it; it imports all but http, slurm and the inside of converters and lab.
"""

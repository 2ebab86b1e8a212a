"""The commands: their options, tables, JSON and exit codes. They print the decisions of other
packages and make none. No package imports it; it imports all but http, slurm and the inside of
converters and lab."""

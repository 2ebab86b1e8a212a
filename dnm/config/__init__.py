"""The ini, the map of queues and files of events -> `Config`, every problem at once; the one reader
of settings for every program of dnm.
The edges of the programs (run, cli, verbs, converters, demo) may import it; it imports model, host
and calendar.
"""

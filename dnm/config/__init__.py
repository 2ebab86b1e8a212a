"""The ini and the map of queues -> `Config`, every problem at once; the one reader of settings for
every program of dnm. It reads two files and nothing else.
The edges of the programs (cli, convert) may import it; it imports only model.
"""

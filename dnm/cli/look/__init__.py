"""The commands of the panel Look.
cli, act, manual and set_up may import it; it imports all but verbs, http, lab and the insides of
converters.
"""

"""The commands of the panel Look.
cli, act, by_hand and set_up may import it; it imports all but verbs, http, lab and the insides of
converters.
"""

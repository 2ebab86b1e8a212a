"""The commands of the panel Look, and the report of a run.
cli, by_hand, set_up and act may import it; it imports all but verbs, http, lab and the insides of
converters.
"""

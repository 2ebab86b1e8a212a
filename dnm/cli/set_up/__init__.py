"""The commands of the panel Set up: checks, test load, queue document, node types, state.
cli may import it; it imports all but verbs, by_hand, act, http, lab, simulate and the
insides of converters.
"""

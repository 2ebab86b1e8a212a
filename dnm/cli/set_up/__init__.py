"""The commands in the panel "Set up" of the help: checks, test load, queue document, node types,
registry. cli may import it; it imports all but verbs, manual, act, http, lab, simulate and the
insides of converters."""

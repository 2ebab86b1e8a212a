"""The commands of the panel Set up: checks, test load, queue document, node types, state. cli may
import it; it imports all but verbs, manual, act, http, lab, simulate and the insides of
converters."""

"""The commands in the panel Look of the help, which change nothing. cli, act, manual and set_up may
import it; it imports all but verbs, http, lab and the insides of converters."""

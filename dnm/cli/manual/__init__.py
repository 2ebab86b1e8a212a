"""The commands in the panel "Manual changes" of the help, with which an administrator changes the
registry. cli may import it; it imports all but set_up, http, lab, simulate and converters."""

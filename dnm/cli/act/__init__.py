"""The commands in the panel Act of the help: run, pause, resume, reset, forget and takeover. cli
and manual may import it; it imports all but manual, set_up, http, lab, simulate and converters."""

"""An iCalendar file (RFC 5545) -> events: a program of its own, for its libraries are slow to load
and a rule can be made to take for ever.
run may import `question`, what it asks the program; it imports model, calendar and config.
"""

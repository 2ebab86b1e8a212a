"""An iCalendar file (RFC 5545) -> events: a program of its own, for its libraries are slow to load
and a rule can be made to take for ever. What a run needs of it is `question.py`.

May import dnm.config, dnm.calendar, dnm.model and nothing else of dnm.
"""

"""What is known beforehand: events, their windows in UTC, and reading a calendar's file.

May import dnm.model and nothing else of dnm.
"""

"""Planned events, their windows in UTC, and the current events of a calendar. Pure. Packages that
plan or show events (config, the rules of plan, verbs, run, cli) may import it; it imports only
model."""

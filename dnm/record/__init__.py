"""The record: the history of what happened and why, and the metrics and reports made of it. Pure,
except for the history file, which is appended to and read. Only cli and run may import it; it
imports model, and host for its files."""

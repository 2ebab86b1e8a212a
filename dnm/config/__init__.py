"""Reading of the ini, the queue map and files of events into `Config`, with all problems at once.

Every program of dnm reads its settings here. The entry points of programs (run, cli, verbs,
converters, demo) may import it; it imports model, host and calendar."""

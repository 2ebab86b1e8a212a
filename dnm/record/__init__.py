"""The record: what happened, why, and the numbers of each decision, and the metrics made of it.
Pure, except for the file of history that is appended to and read. Only cli and run may import it;
it imports model, and host for its files."""

"""The tests of `dnm/record/`."""

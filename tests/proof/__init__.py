"""Tests that dnm keeps its invariants through kills, races, failures and mistakes."""

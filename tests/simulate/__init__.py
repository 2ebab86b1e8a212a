"""Tests of dnm/simulate; those of its simulated world are in tests/economy/test_world.py."""

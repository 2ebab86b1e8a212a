"""Tests of dnm/simulate. tests/economy/test_world.py tests the rules of the simulated world."""

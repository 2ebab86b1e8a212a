"""Tests of dnm/simulate; what the world's own rules are is told in tests/economy/test_world.py."""

"""`reversion_idle_seconds`: for how long an idle node stays, whatever its return costs. Pure."""

from __future__ import annotations

from dnm.plan.hooks import Rule

RULE = Rule(stays=lambda policy: policy.reversion_idle)

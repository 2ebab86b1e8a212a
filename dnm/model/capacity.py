"""The names in Kueue's CapacityProviders, whose status has quota for a ClusterQueue."""

from __future__ import annotations

from dnm.model.kueue import LEDGER

CONTROLLER = "dynamic-node-manager/lent-nodes"
"""The controllerName of CapacityProviders that dnm writes."""
SYNCHRONIZED = "CapacitySynchronized"
"""The condition without which Kueue ignores a CapacityProvider."""
LEDGER_CONDITION = LEDGER
"""The condition whose message is the ledger, because a status write changes no annotation."""

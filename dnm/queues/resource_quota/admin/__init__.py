"""The part of `dnm check` for ResourceQuotas. No package imports it: checks loads it by its name.
It imports model, kube, demand, checks, resource_quota and the admin part of none."""

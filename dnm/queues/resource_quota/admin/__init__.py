"""The parts of `dnm check` and `dnm explain` for ResourceQuotas. No package imports it: checks and
cli load it by its name. It imports model, kube, demand, checks and resource_quota."""

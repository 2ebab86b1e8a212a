"""The commands of the panel By hand: what an administrator changes in the registry.
cli and act may import it; it imports all but set_up, act, http, lab, simulate and converters.
"""

"""The commands of the panel By hand: what an administrator changes in the registry.
cli may import it; it imports all but set_up, http, lab, simulate and converters.
"""

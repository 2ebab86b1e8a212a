"""The commands of the panel Manual changes: what an administrator changes in the registry.
cli may import it; it imports all but set_up, http, lab, simulate and converters.
"""

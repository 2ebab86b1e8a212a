"""The values that everything else speaks in: configuration, cluster, registry, plan; quantities,
host lists, text for people, errors. It does nothing but hold them.
Everybody may import it; it imports nothing of dnm.
"""

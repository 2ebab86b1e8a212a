"""The values that everything else speaks in: configuration, cluster, registry, plan; quantities,
host lists, text for people, errors, trust in files, fault points.
Everybody may import it; it imports nothing of dnm.
"""

"""The queue document: text, tree, ledger and verdict; its baselines, its edit, its writing, and
YuniKorn's own word about it over REST.
plan and sizing may import all but `writer` and `yunikorn_rest`; it imports model,
and http for the REST.
"""

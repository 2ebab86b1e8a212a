"""The queue document as one value: source, tree, ledger and verdict (`document`); what each limit
would be without lent nodes (`baselines`); its next state (`edit`, `rebase`) and its writing.
plan may import all but `writer` and `yunikorn_rest`; it imports model, and http for the REST.
"""

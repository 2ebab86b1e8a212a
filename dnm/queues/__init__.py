"""The queue document as one value: source, tree, ledger and verdict (`document`); what each limit
would be without lent nodes (`baselines`), its next state (`edit`, `rebase`), its writing (`writer`)
and YuniKorn's own word over REST. It imports only model.
plan may import all but `writer` and `yunikorn_rest`; those two are for run and cli.
"""

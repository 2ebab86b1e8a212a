"""The queue document as one value: source, tree, ledger and verdict (`document`); what each limit
would be without lent nodes (`limits`); its next state (`edit`, `rebase`) and its writing.
plan and its rules may import what is pure, simulate the document and its edit, run and cli all of
it; it imports model and host, and http for YuniKorn's REST.
"""

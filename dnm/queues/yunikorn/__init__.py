"""The queue document as one value: source, tree, ledger and violations (`document`). `limits`
derives each baseline, `edit` and `rebase` make the next document, and `system` writes it, behind
the interface of queues. simulate, run and cli may import it. It imports model and host, and http
for YuniKorn's REST."""

"""The queue document as one value: source, tree, ledger and violations (`document`). `limits`
derives each baseline, `edit` and `rebase` make the next document, and `writer` writes it. plan and
its rules may import the pure modules, simulate may import the document and its edit, and run and
cli all of it. It imports model and host, and http for YuniKorn's REST."""

"""YuniKorn as a queue system. `document` reads the queue document, its ledger and its violations.
`limits` derives each baseline, `edit` and `rebase` make the next document, and `system` writes it
behind the interface of queues. simulate, run and cli may import it. It imports model and host, and
http for YuniKorn's REST API."""

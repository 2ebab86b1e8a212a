"""`dnm demo`: a workshop on the sandbox, with final checks. Only the lab's verbs import it; it
imports model, host, config and the sandbox."""

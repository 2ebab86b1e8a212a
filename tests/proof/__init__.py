"""The proof that dnm keeps its promises through kills, races, failures and bad days."""

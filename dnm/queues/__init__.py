"""The interface for queue systems. Each queue system is one package below it."""

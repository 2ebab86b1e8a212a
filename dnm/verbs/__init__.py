"""What a person's verb makes of the registry: another registry, or why not; one table of them.
Pure: what the outside says of a node is handed in.
cli may import it; it imports model, calendar, sizing, plan, its rules and from config the bound of
events.
"""

"""The one pass: lock, registry, snapshot, plan, actions, record.
What is read is read in `snapshot`, what is done is done in `actuator`.
Only cli may import it; it imports all of the above.
"""

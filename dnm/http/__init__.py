"""One HTTP connection with a deadline for all of it, and bodies of a bounded size: what the API
server and YuniKorn's REST are read with.
The edges (kube, queues.yunikorn_rest) may import it; it imports only model.
"""

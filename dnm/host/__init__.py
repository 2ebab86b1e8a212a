"""This host: what runs on it within bounds of bytes and time, what on its disk may be trusted and
who may read it, where a dnm is, and the points at which tests make it fail.
Those that touch the world (config, http, kube, slurm, converter, converters, queues, record, run,
cli, sandbox, demo) may import it; it imports only model.
"""

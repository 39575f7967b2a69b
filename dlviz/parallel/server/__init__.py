"""Ranks that learn from each other through a server, or through memory that they share.

parameter_server.py   servers average gradients, all or the first
stale_synchronous.py  rank 0 applies each gradient as it comes; who may run how far ahead
push_pull.py          what travels between a worker and a server
server_slices.py      the parameters, in a slice for each server
hogwild.py            one model in shared memory, with a lock or without
"""

"""Ranks that learn from each other through a server, or through shared memory.

parameter_server.py   servers average the gradients of all workers, or of the fastest
stale_synchronous.py  rank 0 applies each gradient on arrival; how far a worker may run ahead
push_pull.py          the messages between a worker and a server
server_slices.py      the parameters, in a slice for each server
hogwild.py            one model in shared memory, with or without a lock
"""

"""Groups of ranks: membership.py says who is in which, collective.py has the backend's collectives,
survivors.py what the ranks that are left do, reduction.py sums in shared memory."""

"""Groups of ranks: membership.py has their members, collective.py the backend's collectives,
survivors.py what surviving ranks do together, reduction.py reductions in shared memory."""

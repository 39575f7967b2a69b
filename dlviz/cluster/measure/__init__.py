"""What messages cost: link.py between two ranks, network.py inside a host and out of it."""

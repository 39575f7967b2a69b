"""What a rank sends and receives: comm.py has `Comm`, requests.py and awaited.py what is under way,
lanes.py threads beside the rank's own, endpoint.py and buffers.py what they all go through."""

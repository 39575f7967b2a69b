"""What a rank sends and receives: comm.py has `Comm`, requests.py and awaited.py what is in flight,
lanes.py further threads of a rank, endpoint.py and buffers.py what they all use."""

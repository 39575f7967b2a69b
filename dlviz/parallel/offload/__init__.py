"""CPU and GPU together: the host's memory has what the device need not hold, and the host updates.

    arena.py      the memory of host or device: capacity, who holds what, no reading across
    copies.py     lanes h2d and d2h: copies between the two
    layers.py     a layer's parameters and gradients, flat, on either side
    stream.py     which layers are on the device, and which are brought next
    host.py       lane host: averages and updates a layer
    offloaded.py  the model, whose hooks bring layers and send gradients
    train.py      training: the rule on the host, a step late, or with streamed layers too

`sim.stream_seconds` is the closed form of `stream`.
"""

from dlviz.parallel.offload.arena import Arena
from dlviz.parallel.offload.train import train

__all__ = ["Arena", "train"]

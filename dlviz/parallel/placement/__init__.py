"""Any placement of a model's operators on ranks: each rank computes its groups, and values go to
the ranks that need them.

    rank 0   forward a | forward c            | backward c | backward a | update
                   \\ value of a                     / its gradient
    rank 1             | forward b |          | backward b |            | update

The forward is exported, not written again: `graph_of` makes groups of operators, and a search
places them. A rank runs its groups in the order in which dlviz.sim.play would, the schedule of this
placement. A value goes once to each other rank that needs it; the gradients of a value that a rank
has used come back as one sum. A parameter that several groups use is a value as well, so that one
rank holds it and updates it. Every rank has the whole batch.

    value of group g          tag g
    gradient of that value    tag g + groups

    placed_model.py   a rank's groups, forward and backward      train.py     the strategy
    devices.py        the ranks as devices                       measure.py   seconds of placements

Source: A. Mirhoseini et al., "Device Placement Optimization with Reinforcement Learning", ICML
2017. In TensorFlow: tf.device; in PyTorch: `x.to(device)` between modules.
"""

from dlviz.parallel.placement.measure import measure
from dlviz.parallel.placement.placed_model import PlacedModel
from dlviz.parallel.placement.train import train

__all__ = ["PlacedModel", "measure", "train"]

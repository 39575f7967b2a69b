"""Model distribution: each rank has a part of one network.

train.py            parts one after the other, or side by side
layer_split.py      which layers are which rank's
part_messages.py    what ranks with parts of one model send each other
tied_parameters.py  parameters that parts of several ranks share
"""

from dlviz.parallel.model.train import SideBySide, in_sequence, join, side_by_side, train

__all__ = ["SideBySide", "in_sequence", "join", "side_by_side", "train"]

"""Model distribution: each rank has a part of one network.

train.py            training, and parts one after the other
side_by_side.py     sub-networks at the same time
layer_split.py      which layers each rank has
part_messages.py    the messages between parts of one model
tied_parameters.py  parameters that parts on several ranks share
"""

from dlviz.parallel.model.side_by_side import SideBySide, join, side_by_side
from dlviz.parallel.model.train import in_sequence, train

__all__ = ["SideBySide", "in_sequence", "join", "side_by_side", "train"]

"""Model distribution: each rank has a part of one network.

train.py            parts one after the other, or side by side
layer_split.py      which layers each rank has
part_messages.py    the messages between parts of one model
tied_parameters.py  parameters that parts on several ranks share
"""

from dlviz.parallel.model.train import SideBySide, in_sequence, join, side_by_side, train

__all__ = ["SideBySide", "in_sequence", "join", "side_by_side", "train"]

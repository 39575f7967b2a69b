"""The small models that the labs train, their seeding by layer, training in one process, and what
each layer stores.

Each model is an `nn.Sequential`, so that `model[:4]` is a stage of it. There are no batch
statistics: the gradient of a batch is the mean of its shards' gradients, which makes a parallel run
comparable with one process.
"""

from dlviz.models.language import LSTM, target_tokens, token_loss
from dlviz.models.nets import MLP, ConvNet
from dlviz.models.seeding import seed_layers
from dlviz.models.storage import layer_storage
from dlviz.models.train import accuracy, error_by_label, largest_curvature, train

__all__ = [
    "LSTM",
    "MLP",
    "ConvNet",
    "accuracy",
    "error_by_label",
    "largest_curvature",
    "layer_storage",
    "seed_layers",
    "target_tokens",
    "token_loss",
    "train",
]

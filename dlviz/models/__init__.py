"""The small models that the labs train, their seeding by layer, training in one process, and what
each layer stores.

The MLP, the ConvNet and the LSTM are an `nn.Sequential` each, so that `model[:4]` is a stage of it;
a Transformer's stages are made of its `blocks`. There are no batch statistics: the gradient of a
batch is the mean of its shards' gradients, which makes a parallel run comparable with one process.
"""

from dlviz.models.language import LSTM, target_tokens, token_loss
from dlviz.models.nets import MLP, ConvNet
from dlviz.models.seeding import seed_layers
from dlviz.models.storage import kept_tensors, layer_storage
from dlviz.models.train import accuracy, error_by_label, largest_curvature, train
from dlviz.models.transformer import Transformer

__all__ = [
    "LSTM",
    "MLP",
    "ConvNet",
    "Transformer",
    "accuracy",
    "error_by_label",
    "largest_curvature",
    "kept_tensors",
    "layer_storage",
    "seed_layers",
    "target_tokens",
    "token_loss",
    "train",
]

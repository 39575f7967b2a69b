"""The small models that the labs train, their seeding by layer, training in one process, and what
each layer stores; a module's graph of operators.

All but the Transformer are `nn.Sequential`s, so that `model[:4]` is a stage; a Transformer's stages
are made of its `blocks`. Only SmallResNet has batch statistics: for all others the gradient of a
batch is the mean of its shards' gradients, which makes a parallel run comparable with one process.
"""

import warnings
from typing import Any

from dlviz.models.graph import graph_of
from dlviz.models.graph_net import GraphNet
from dlviz.models.language import LSTM, target_tokens, token_loss
from dlviz.models.nets import MLP, ConvNet, Residual, SmallAlexNet, SmallResNet
from dlviz.models.seeding import seed_layers
from dlviz.models.step_cost import step_cost
from dlviz.models.storage import layer_storage, saved_tensors
from dlviz.models.train import (
    accuracy,
    error_by_label,
    gradient_noise,
    largest_curvature,
    steps_to_error,
    train,
)
from dlviz.models.transformer import Transformer

__all__ = [
    "LSTM",
    "MLP",
    "ConvNet",
    "Residual",
    "SmallAlexNet",
    "SmallResNet",
    "GraphNet",
    "Transformer",
    "accuracy",
    "error_by_label",
    "gradient_noise",
    "graph_of",
    "largest_curvature",
    "layer_storage",
    "saved_tensors",
    "seed_layers",
    "step_cost",
    "steps_to_error",
    "target_tokens",
    "token_loss",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "kept_tensors":
        warnings.warn("kept_tensors is called saved_tensors now.", DeprecationWarning, stacklevel=2)
        return saved_tensors
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Initial weights that depend only on (seed, layer).

    layer    0    1    2    3          one process
    stage   [0    1]  [2    3]         two ranks: the same weights, whoever builds them

Drawn in a row from one generator, the weights of layer 3 would depend on the layers before it, and
a rank that builds only layers 2 and 3 would start from other weights. The idea is ShallowSpeed's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import torch
from torch import nn

Net = TypeVar("Net", bound=nn.Module)


def seed_layers(module: Net, seed: int, first: int = 0) -> Net:
    """Draw the weights of `module` anew, in place, each layer from its own generator.

    A layer is a submodule with its own parameters; layers are numbered from `first` in the order of
    `module.modules()`. A part of a network with its layers 2 and 3 gets the network's weights by
    `first=2`. A layer is drawn by its `reset_parameters`, as torch initialises it; without one its
    parameters are drawn from U(-1/sqrt(k), 1/sqrt(k)), k the size of their last dim. torch's global
    generator is unchanged. Seed before moving to a device or another dtype: generators differ
    between them.
    """
    generator = torch.default_generator
    state = generator.get_state()
    layers = (m for m in module.modules() if any(True for _ in m.parameters(recurse=False)))
    try:
        for index, layer in enumerate(layers, first):
            generator.manual_seed(seed * 1_000_003 + index)
            _draw(layer)
    finally:
        generator.set_state(state)
    return module


def _draw(layer: nn.Module) -> None:
    reset = getattr(layer, "reset_parameters", None)
    if reset is not None:
        cast(Callable[[], None], reset)()
        return
    for parameter in layer.parameters(recurse=False):
        bound = (parameter.size(-1) if parameter.dim() else 1) ** -0.5
        nn.init.uniform_(parameter, -bound, bound)

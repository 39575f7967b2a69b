"""Strategies for training one network on many ranks.

strategies.py    their names, for `dlviz run`
data.py          data parallelism: the naive way, DDP, and what lies beside them; servers, averaging
model.py         the parts of one network on several ranks (parts.py, exchange.py, ties.py)
update_rules/    how a gradient moves the weights
layers.py        each layer's forward and backward as spans, and their price (prices.py)
replicas.py      the same network on every rank
pipeline/        stages on ranks, by any schedule
tensor/          each layer cut over ranks: linear, MLP, attention, a Transformer
hybrid/          all three at once: replicas of pipelines of cut layers, on a mesh
summa/           one product of matrices, and its gradients, on a grid of ranks

The names of the strategies are here at once; torch loads with the first module that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlviz.parallel.strategies import STRATEGIES

if TYPE_CHECKING:
    from dlviz.parallel import data, hybrid, pipeline, summa, tensor, update_rules

__all__ = ["STRATEGIES", "data", "hybrid", "pipeline", "summa", "tensor", "update_rules"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"dlviz.parallel.{name}")
    raise AttributeError(f"module 'dlviz.parallel' has no attribute {name!r}")

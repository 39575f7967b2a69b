"""Strategies for training one network on many ranks.

strategies.py    their names, for `dlviz run`
data/            every rank has the whole model: naive data parallelism, DDP and their variants
server/          servers hold the weights, or all ranks share them (Hogwild)
zero/            every rank has a shard of what data parallelism holds on all: ZeRO, stages 1 to 3
averaging/       each rank has its own model: EASGD, local SGD, gossip, ensembles
model/           each rank has a part of the layers
placement/       each rank has some operators, by any placement
tensor/          each rank has a part of every layer: linear, MLP, attention, a Transformer
offload/         the host has the optimizer, or all parameters; the device what it computes with
pipeline/        stages on ranks, by any schedule
hybrid/          data, pipeline and tensor parallelism together, on a mesh
convolution/     convolutions cut over samples, rows, columns, channels and filters
summa/           one matrix product, and its gradients, on a grid of ranks
recomputed.py    layers that run again in the backward, by segments
microbatched.py  a convolution by several methods, in pieces that fit a limit
step/            shared by all strategies: equal replicas, layers as spans, hooks, batch norm
update_rules/    how a gradient moves the weights

`from dlviz.parallel import gossip` finds a strategy in its subpackage. torch loads with the first
module that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlviz.parallel import moved
from dlviz.parallel.strategies import STRATEGIES

if TYPE_CHECKING:
    from dlviz.parallel import (
        convolution,
        data,
        hybrid,
        microbatched,
        model,
        offload,
        pipeline,
        placement,
        recomputed,
        summa,
        tensor,
        update_rules,
        zero,
    )
    from dlviz.parallel.averaging import easgd, ensemble, gossip, local_sgd
    from dlviz.parallel.data import accumulation, central, ddp, late_all_reduce, naive
    from dlviz.parallel.server import hogwild, parameter_server, stale_synchronous

__all__ = [
    "STRATEGIES", "accumulation", "central", "convolution", "data", "ddp", "easgd", "ensemble",
    "gossip", "hogwild", "hybrid", "late_all_reduce", "local_sgd", "microbatched", "model", "naive",
    "offload", "parameter_server", "pipeline", "placement", "recomputed", "stale_synchronous",
    "summa", "tensor", "update_rules", "zero",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(moved.NAMES.get(name, f"dlviz.parallel.{name}"))
    if name in moved.NAMES:
        return import_module(f"dlviz.parallel.{name}")  # warns, and names the new module
    raise AttributeError(f"module 'dlviz.parallel' has no attribute {name!r}")

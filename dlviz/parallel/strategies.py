"""The strategies by name, as `dlviz run` offers them.

A strategy is a function `train(comm, model, batches, rule, *, loss=..., ...)`, a worker for
`launch`. Every rank calls it with the same batches; it returns a Result: `losses`, `state` (only on
rank 0 where no rank has the whole model), `steps`, `evaluations`. `dlviz run` prints the other
results at its end, and turns each int, float, str or bool keyword argument into an option. A
strategy on a mesh takes the length of each axis, and `order`, the names of all axes. Its module is
loaded when it is looked up: names and descriptions need no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any


class Strategies(Mapping[str, Callable[..., Any]]):
    """name -> its `train`. `table` is name -> ("module.function" in `dlviz.parallel`, description),
    `lines` name -> description."""

    def __init__(self, table: dict[str, tuple[str, str]]):
        self._places = {name: place for name, (place, _) in table.items()}
        self.lines = {name: line for name, (_, line) in table.items()}

    def __getitem__(self, name: str) -> Callable[..., Any]:
        module, _, function = self._places[name].rpartition(".")
        return getattr(import_module(f"dlviz.parallel.{module}"), function)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return f"Strategies({', '.join(self)})"


STRATEGIES = Strategies(
    {
        "ddp": (
            "data.ddp.train",
            "data parallel: buckets of gradients are all-reduced while backward goes on",
        ),
        "naive": ("data.naive.train", "data parallel: each gradient is all-reduced after backward"),
        "central": (
            "data.central.train",
            "data parallel: gradients go to rank 0, which updates and copies the net back",
        ),
        "late_all_reduce": (
            "data.late_all_reduce.train",
            "data parallel: gradients are averaged during the next step and applied after it",
        ),
        "sufficient_factors": (
            "data.sufficient_factors.train",
            "data parallel: of a linear layer's gradient its factors are sent, if they are fewer",
        ),
        "zero": (
            "zero.train.train",
            "data parallel: each rank has a shard of the rule's state (--stage 1), of gradients "
            "too (2), of parameters too (3)",
        ),
        "offload": (
            "offload.train",
            "data parallel: the host has the optimizer, or all parameters too (--how stream)",
        ),
        "sync_server": (
            "server.parameter_server.sync_server",
            "rank 0 serves, or --servers ranks: the gradients of a step are averaged, all but "
            "--backups of them",
        ),
        "async_server": (
            "server.stale_synchronous.async_server",
            "rank 0 serves: each gradient is applied on arrival, to weights that have moved on",
        ),
        "stale_synchronous": (
            "server.stale_synchronous.stale_synchronous",
            "rank 0 serves: as async_server, no worker more than --bound iterations ahead",
        ),
        "hogwild": (
            "server.hogwild.train",
            "all ranks train one model in memory that they share, without a lock",
        ),
        "easgd": (
            "averaging.easgd.train",
            "rank 0 holds a centre: each worker trains its own model, tied to it by --alpha",
        ),
        "local_sgd": (
            "averaging.local_sgd.train",
            "each rank trains on its own; all average their models after --every steps",
        ),
        "gossip": (
            "averaging.gossip.train",
            "each rank averages its model with its neighbours' on a ring, or a matched partner's",
        ),
        "model": (
            "model.train",
            "model distribution: each rank has some layers, computed one rank after the other",
        ),
        "placement": (
            "placement.train",
            "each rank has some operators, placed by --placement heft, say: values are sent",
        ),
        "tensor": (
            "tensor.train.train",
            "tensor parallel: each layer is cut over the ranks, which exchange activations",
        ),
        "spatial": (
            "convolution.train.spatial",
            "every image is cut over all ranks, into --height rows and --width columns of blocks, "
            "which exchange their rims",
        ),
        "channel_filter": (
            "convolution.train.channel_filter",
            "each convolution is cut over --filters ranks and --channels ranks, the two exchanged "
            "from one to the next",
        ),
        "cnn_hybrid": (
            "convolution.cnn_hybrid.train",
            "one weird trick: data parallel convolutions, dense layers cut over the ranks "
            "(--crossing all, one, slices)",
        ),
        "3d": (
            "hybrid.train",
            "data, pipeline and tensor parallel together, on the axes of --mesh dp=2,pp=2,tp=2",
        ),
        "ensemble": (
            "averaging.ensemble.train",
            "each rank trains its own model, and nothing is sent",
        ),
    }
)

"""What the explorer of memory runs: a few steps of its model on real ranks, by a stage of ZeRO.

Every figure is of the last step and from the Trace: what each rank held of each kind, and sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dlviz.analysis.memory import peak_by_use
from dlviz.trace import Trace
from dlviz.widgets.memory.parts import KINDS, width
from dlviz.widgets.running import Found, Progress

if TYPE_CHECKING:
    from dlviz.cluster import Comm

STEPS = 3  # of a run
LR = 1e-3


def run(values: dict[str, Any], progress: Progress) -> Found:
    """Train on real ranks: what the front end shows, and the Trace."""
    from dlviz.cluster import launch

    done = launch(train, values["ranks"], args=(values,), progress=progress)
    return found(done.trace, done.results[0]), done.trace


def found(trace: Trace, losses: list[float]) -> dict[str, Any]:
    """What a run measured in its last step: the most that a rank held of each kind, and at once, of
    the rank that held most; and the bytes that a rank sent."""
    last = STEPS - 1
    most = [peak_by_use(trace, rank, last) for rank in trace.ranks]
    peak = max(most, key=lambda own: own.total)
    spans = trace.spans
    sends = np.flatnonzero((spans.kind == "send") & (spans.flow >= 0) & (spans.step == last))
    nbytes = trace.messages.nbytes[spans.flow[sends]].sum()
    return {
        "held": [peak.each.get(kind, 0) for kind in KINDS],
        "together": [peak.together.get(kind, 0) for kind in KINDS],
        "peak": peak.total,
        "sent": float(nbytes / trace.meta["ranks"]),
        "summary": [
            f"The last of {STEPS} steps, of the rank that held most.",
            f"Losses {losses[0]:.4g} to {losses[-1]:.4g}.",
        ],
    }


def train(comm: Comm, values: dict[str, Any]) -> list[float]:
    """What a rank runs; returns the losses. Each rank has rows of its own."""
    import torch
    from torch import nn

    from dlviz.cluster import Storages
    from dlviz.parallel import data, zero
    from dlviz.parallel.recomputed import Recomputed

    torch.manual_seed(0)
    wide = width(values)
    layers = [
        nn.Sequential(nn.Linear(wide, wide, bias=False), nn.Tanh()) for _ in range(values["layers"])
    ]
    model = nn.Sequential(*layers)
    if values["recompute"]:
        model = Recomputed(model)
    generator = torch.Generator().manual_seed(comm.rank)
    x = torch.randn(values["rows"] * values["microbatches"], wide, generator=generator)
    options = {"rule": "adam", "lr": LR, "loss": nn.functional.mse_loss, "sharded": True}
    options["bucket_bytes"] = values["bucket"]
    if values["stage"]:
        options |= {name: values[name] for name in ("stage", "microbatches", "precision")}
    with Storages(comm, model):
        train = zero.train if values["stage"] else data.train
        return train(comm, model, [(x, x)] * STEPS, **options).losses

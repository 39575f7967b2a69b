"""What the explorer of tensor parallelism runs: a few steps of a layer, or an MLP, on real ranks.

Ranks are seeded alike, so that all forms train the same layer on the same rows and their losses are
equal. Messages are counted from the Trace, and so are the blocks that ranks had in the products.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from dlviz.analysis.products import Cells, products
from dlviz.analysis.steps import step_seconds
from dlviz.sim.layer_cuts import FORMS, PHASES, machine_of, seconds
from dlviz.trace import Trace
from dlviz.widgets.running import Found, Progress, late_words
from dlviz.widgets.tensor.picture import Block

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dlviz.cluster import Comm

STEPS = 3  # of a run
LR = 0.1
ENDS = {  # how X and Y are cut where a step begins and ends
    "data": ("rows", "rows"),
    "partition_output": ("rows", "columns"),
    "partition_output_whole": ("whole", "columns"),
    "reduce_output": ("columns", "whole"),
    "mlp_data": ("rows", "rows"),
    "mlp": ("whole", "whole"),
}


def run(values: dict[str, Any], progress: Progress) -> Found:
    """Train on real ranks, paced: what the front end shows, its seconds by the wall clock, and the
    Trace."""
    from dlviz.cluster import launch

    machine = machine_of(values["ranks"])
    done = launch(train, machine.ranks, machine, args=(values,), progress=progress)
    return found(values, done.trace, done.results[0]), done.trace


def found(values: dict[str, Any], trace: Trace, loss: float) -> dict[str, Any]:
    """What a run measured: bytes that a rank sent in a step, and seconds."""
    nbytes, first = _by_direction(trace)
    sums = np.array([nbytes[direction] for direction in PHASES])  # (directions, ranks)
    each = sums.sum(axis=0)
    took = float(np.median(step_seconds(trace, "wall")))
    summary = [f"The median of {STEPS} steps; last loss {loss:.6g}."]
    if each.max() > each.min():
        summary.append(
            f"The chunks of the ring are not of one size: ranks sent {each.min():,.0f} to "
            f"{each.max():,.0f} bytes."
        )
    late = trace.meta["lateness"]["worst"]
    return {
        "directions": sums.mean(axis=1).tolist(),
        "bytes": float(each.mean()),
        "first": [first.get(direction, -1) for direction in PHASES],
        "seconds": took,
        "late": late_words(late, seconds(**values) / 10, values["ranks"]),
        "summary": summary,
        "blocks": blocks_of(trace),
    }


def _by_direction(trace: Trace) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """The last step by direction: bytes that each rank sent, and the row of the first message."""
    spans, nbytes = trace.spans, trace.messages.nbytes
    sent = {direction: np.zeros(trace.meta["ranks"]) for direction in PHASES}
    first: dict[str, int] = {}
    sends = (spans.kind == "send") & (spans.flow >= 0) & (spans.step == STEPS - 1)
    for row in sorted(np.flatnonzero(sends).tolist(), key=lambda row: spans.start[row]):
        direction, message = spans.fields[row]["direction"], int(spans.flow[row])
        sent[direction][spans.rank[row]] += nbytes[message]
        first.setdefault(direction, message)
    return sent, first


def blocks_of(trace: Trace) -> dict[str, list[Block]]:
    """The block of each rank in the factors and the result of each product, by matrix."""
    mlp = {"up": ("X", "W₁", "Z"), "down": ("", "W₂", "Y"), "": ("X", "W", "Y")}
    had: dict[str, dict[int, Block]] = {}
    for each in products(trace):
        x, w, y = mlp[each.layer]
        for name, own in ((x, _block(each.x)), (w, _block(each.w)), (y, _block(each.y))):
            had.setdefault(name, {})[each.rank] = own
        lows, highs, left, right = had[w][each.rank]
        had[w][each.rank] = left, right, lows, highs  # torch has the transpose
    return {name: [own[rank] for rank in sorted(own)] for name, own in had.items() if name}


def _block(cells: Cells) -> Block:
    (top, left), (bottom, right) = cells.start, cells.stop
    return top, bottom, left, right


def train(comm: Comm, values: dict[str, Any]) -> float:
    """What a rank runs; returns the loss of the last step."""
    import torch

    from dlviz.parallel.step.layers import LayerSpans
    from dlviz.parallel.step.prices import update_seconds

    form, batch = FORMS[values["form"]], values["batch"]
    columns = values["inputs" if form.mlp else "outputs"]  # of Y
    torch.manual_seed(0)
    model = model_of(comm, values)
    LayerSpans(comm, model)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batch, values["inputs"], generator=generator)  # (B, C_in)
    target = torch.randn(batch, columns, generator=generator)  # (B, C_out)
    x, target = (
        part(comm, of, cut) for of, cut in zip((x, target), ENDS[values["form"]], strict=True)
    )
    rule = torch.optim.SGD(model.parameters(), LR)
    for step in comm.progress(range(STEPS), "step"):
        comm.barrier()
        with comm.span("step", step=step):
            given = x.clone().requires_grad_()  # as if a layer lay below
            loss = ((forward(comm, values, model, given) - target) ** 2).sum() / (batch * columns)
            rule.zero_grad()
            loss.backward()
            if form.data:
                sync(comm, model)
            with comm.compute("update", seconds=update_seconds(comm, model.parameters())):
                rule.step()
    losses = torch.tensor(loss.item())
    if target.numel() < batch * columns:  # each rank has a part of Y, and of the loss
        comm.all_reduce(losses)
    return float(losses)


def part(comm: Comm, whole: torch.Tensor, cut: str) -> torch.Tensor:
    """What this rank has of a matrix."""
    if cut == "whole":
        return whole
    return whole.chunk(comm.size, 0 if cut == "rows" else 1)[comm.rank].contiguous()


def model_of(comm: Comm, values: dict[str, Any]) -> nn.Module:
    """This rank's part of the layer, or of the MLP, without biases."""
    from torch import nn

    from dlviz.parallel.tensor import ColumnParallelLinear, RowParallelLinear

    form, inputs, outputs = values["form"], values["inputs"], values["outputs"]
    if form == "data":
        return nn.Linear(inputs, outputs, bias=False)
    if form == "reduce_output":
        return RowParallelLinear(comm, inputs, outputs, bias=False)
    if not FORMS[form].mlp:
        return ColumnParallelLinear(comm, inputs, outputs, bias=False)
    if form == "mlp_data":
        up = nn.Linear(inputs, outputs, bias=False)
        down = nn.Linear(outputs, inputs, bias=False)
    else:
        up = ColumnParallelLinear(comm, inputs, outputs, bias=False)
        down = RowParallelLinear(comm, outputs, inputs, bias=False)
        up.name, down.name = "up", "down"
    return nn.Sequential(OrderedDict(up=up, gelu=nn.GELU(), down=down))


def forward(comm: Comm, values: dict[str, Any], model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Y of X: this rank's parts of both."""
    from torch import nn

    from dlviz.parallel.tensor.conjugate import gather_sequence
    from dlviz.parallel.tensor.product import Entered

    if values["form"] == "partition_output":  # the gathered X is saved for the backward
        return model(Entered(gather_sequence(comm, x)))
    if not FORMS[values["form"]].data:
        return model(x)
    layers = dict(model.named_children()) or {"": model}
    for name, layer in layers.items():
        if not isinstance(layer, nn.Linear):
            x = layer(x)
            continue
        low, (rows, k), n = comm.rank * len(x), x.shape, layer.out_features
        place = {
            "x": f"[{low}:{low + rows}, 0:{k}] of ({values['batch']}, {k})",
            "w": f"[0:{n}, 0:{k}] of ({n}, {k})",
            "y": f"[{low}:{low + rows}, 0:{n}] of ({values['batch']}, {n})",
        }
        with comm.span("phase", f"product {name}".strip(), layer=name, **place):
            x = layer(x)
    return x


def sync(comm: Comm, model: nn.Module) -> None:
    """Sum the gradients of all ranks, each of its own rows' part of the one mean."""
    from dlviz.collectives import all_reduce

    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    for name, gradient in gradients.items():
        how = {"layer": name.removesuffix(".weight"), "direction": "gradient sync"}
        with comm.span("collective", f"all-reduce {name}", collective="all_reduce", **how):
            all_reduce(comm, gradient)

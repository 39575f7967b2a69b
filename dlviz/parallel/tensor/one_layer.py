"""One linear layer Y = X W in three forms, a training step of each: what the ranks send and hold.

    form               rank r holds          the ranks add up
    data               W, rows r of X        dW, after the backward
    partition_output   columns r of W, X     dX, in the backward
    reduce_output      rows r of W, of X     Y, in the forward
                       the columns r

What a rank sends by these forms is `dlviz.sim.layer_bytes`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.collectives import all_reduce
from dlviz.parallel.tensor.checks import check_divides
from dlviz.parallel.tensor.linear import ColumnParallelLinear, RowParallelLinear

Case = tuple[str, int, int, int]  # form, rows of X, inputs, outputs


def layer_steps(comm: Comm, cases: Sequence[Case]) -> list[dict[str, int]]:
    """A training step with Adam of each case, `(form, B, C_in, C_out)`; case i is step i of the
    Trace. The input wants its gradient, as if another layer lay below. A worker for `launch`.

    Returns for each case the bytes that this rank holds of `weights`, `gradients` and `Adam`, its
    two moments. Raises ValueError for another form, and for sizes that the ranks do not divide.
    """
    return [_step(comm, number, *case) for number, case in enumerate(cases)]


def _step(
    comm: Comm, number: int, form: str, batch: int, inputs: int, outputs: int
) -> dict[str, int]:
    shape = batch, inputs  # of this rank's X
    if form == "data":
        check_divides("batch", batch, comm.size, "rows")
        layer, shape = nn.Linear(inputs, outputs, bias=False), (batch // comm.size, inputs)
    elif form == "partition_output":
        layer = ColumnParallelLinear(comm, inputs, outputs, bias=False)
    elif form == "reduce_output":
        layer = RowParallelLinear(comm, inputs, outputs, bias=False)
        shape = batch, inputs // comm.size
    else:
        raise ValueError(
            f"form={form!r} is not known: use 'data', 'partition_output' or 'reduce_output'."
        )
    rule = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, shape[1]))  # in its first forward the ranks also compare what they hold
    with comm.span("step", step=number):
        layer(torch.ones(shape, requires_grad=True)).sum().backward()
        weight = layer.weight
        assert isinstance(weight, nn.Parameter) and weight.grad is not None
        if form == "data":
            all_reduce(comm, weight.grad, "ring")
        rule.step()
    moments = (rule.state[weight][name].nbytes for name in ("exp_avg", "exp_avg_sq"))
    return {"weights": weight.nbytes, "gradients": weight.grad.nbytes, "Adam": sum(moments)}

"""What the three parts of a training step cost, in FLOP and in seconds.

    forward    2 FLOP a weight and example     the FLOP of matrix products alone
    backward   4, but 2 in the first layer     whose input needs no gradient
    update     0                               elementwise: no product

Source: torch.utils.flop_counter counts the products.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from dlviz.counts import check_counts

if TYPE_CHECKING:
    import pandas

PARTS = ("forward", "backward", "update")


def step_cost(
    model: nn.Module,
    batch: tuple[torch.Tensor, torch.Tensor],
    lr: float = 0.1,
    repeats: int = 20,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = functional.cross_entropy,
) -> pandas.DataFrame:
    """The parts of a step of SGD on `batch` (inputs, targets): rows forward, backward, update.

    `FLOP`: those of the step's matrix products. `seconds`: the least of `repeats` steps, which are
    taken in place, since other work on the machine only adds to them.
    """
    import pandas
    from torch.utils.flop_counter import FlopCounterMode

    check_counts(repeats=repeats)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def parts() -> Iterator[None]:
        """A step that stops after each part."""
        optimizer.zero_grad()
        yield
        value = loss(model(batch[0]), batch[1])
        yield
        value.backward()
        yield
        optimizer.step()
        yield

    with FlopCounterMode(display=False) as counter:
        done = [counter.get_total_flops() for _ in parts()]
    ends = [[time.perf_counter() for _ in parts()] for _ in range(repeats)]
    took = (torch.tensor(ends, dtype=torch.float64) - ends[0][0]).diff(dim=1).amin(dim=0)
    flops = [after - before for before, after in zip(done, done[1:], strict=False)]
    return pandas.DataFrame({"FLOP": flops, "seconds": took.tolist()}, index=[*PARTS])

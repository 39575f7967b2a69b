"""The operator graph of a module: which groups of operators can run on which device.

    x --> norm --+--> q --+
                 +--> k --+--> attention --> (+) --> ...     a group a box
                 +--> v --+

What stays together is a group (groups.py): a parameter and its operator, a chain, an operator's
forward and its backward. A parameter that several operators use is a group of its own: its value
goes to them, as any value does, and their gradients come back.

The groups are measured by one step here, group by group. `graph` is the forward for
dlviz.sim.search, `whole` a training step with each backward in its group, and `training` the step
of one placement, its messages as they are sent.

    operator_graph.py   the graph as data        operators.py   a program of operators, exported
    graph_steps.py      what the groups take     groups.py      which operators stay together

Source: A. Mirhoseini et al., "Device Placement Optimization with Reinforcement Learning", ICML
2017, section 3 (co-location groups).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from dlviz.counts import check_counts
from dlviz.models.graph_steps import measured
from dlviz.models.groups import grouped
from dlviz.models.operator_graph import OperatorGraph
from dlviz.models.operators import BY, exported, traced


def graph_of(
    module: nn.Module,
    shape: Sequence[int] | torch.Tensor,
    *,
    by: str = "operators",
    device: Any = None,
    like: OperatorGraph | None = None,
) -> OperatorGraph:
    """The operator graph of `module` for a batch of that `shape`, or for a batch: tokens (int64)
    where the module begins with an embedding, else of its parameters' dtype.

    `by` "operators" exports them with torch.export; "children" takes each call of a child module as
    one. `device`, a dlviz.machine.Device, prices a group: FLOPs / its flops, without a product
    bytes / its memory_bandwidth; None measures it here, the median of three steps. `like`: the
    graph of another batch, whose seconds count.

    Raises ValueError for a forward that cannot be exported, with its line; for one without one
    tensor as output; for an unknown `by`.
    """
    if by not in BY:
        raise ValueError(f"by={by!r} is not known: use {' or '.join(map(repr, BY))}.")
    copied = copy.deepcopy(module)  # it will have gradients, and other buffers
    batch = shape if isinstance(shape, torch.Tensor) else _batch(copied, shape)
    program = (exported if by == BY[0] else traced)(copied, batch)
    groups, parents = grouped(copied, program, by == BY[1])
    found = OperatorGraph(groups, program.output, program.constants, by == BY[1], parents)
    if like is not None:
        if len(like) != len(found):
            raise ValueError(
                f"a batch of shape {tuple(batch.shape)} makes {len(found)} groups of operators and "
                f"the first batch made {len(like)}: give batches of one shape."
            )
        found = replace(found, constants=like.constants)
    return measured(found, copied, batch, device, like)


def _batch(module: nn.Module, shape: Sequence[int]) -> torch.Tensor:
    check_counts(**{f"shape[{dim}]": size for dim, size in enumerate(shape)})
    owners = (each for each in module.modules() if [*each.parameters(recurse=False)])
    first = next(owners, None)
    if isinstance(first, nn.Embedding):
        return torch.zeros(*shape, dtype=torch.int64, device=first.weight.device)
    like = next(module.parameters(), torch.empty(0))
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return drawn.to(like.device, like.dtype)

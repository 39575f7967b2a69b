"""A model cut into stages: runs of its layers, the costliest run as cheap as possible.

    layers    4 1 1 | 3 3 | 6      three stages; the costliest takes 6, and no cut does better

A pipeline runs at the pace of its slowest stage. Dynamic programming finds the best cut:
best(k layers, s stages) = min over the start i of the last run of max(best(i, s-1), cost(i..k)).
Source: the partitioning of Narayanan et al., PipeDream, SOSP 2019, section 3.1, of one level.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import median
from time import perf_counter

import torch
from torch import fx, nn

REPEATS = 5  # their median counts


def split(
    model: nn.Module, stages: int, costs: Sequence[float] | torch.Tensor | None = None
) -> list[nn.Module]:
    """`model` as a sequence of `stages` modules, with its own parameters by their names in it.

    A layer is a child of the model, which is an nn.Sequential or a module whose forward is its
    children one after the other. `costs` are the costs of the layers, in any unit; or a batch of
    inputs, on which forward and backward of each are timed; None counts a layer's parameters, to
    which the work of a matrix product is proportional. Raises ValueError for a model that cannot be
    cut like this, one with fewer layers than stages, and invalid costs.
    """
    named = named_in_order(model)
    layers = [layer for _, layer in named]
    if isinstance(stages, bool) or not isinstance(stages, int) or stages < 1:
        raise ValueError(f"stages={stages!r} has to be a whole number, 1 or more.")
    if len(layers) < stages:
        raise ValueError(
            f"{type(model).__name__} has {len(layers)} layers for stages={stages}: a stage has one "
            f"layer or more, so use stages={max(1, len(layers))} or fewer."
        )
    if costs is None:
        costs = [float(sum(p.numel() for p in layer.parameters())) for layer in layers]
    elif isinstance(costs, torch.Tensor):
        costs = measure(layers, costs)
    if len(costs) != len(layers):
        raise ValueError(
            f"costs has {len(costs)} entries for the {len(layers)} layers of "
            f"{type(model).__name__}: give one for each."
        )
    for layer, cost in enumerate(costs):
        if not 0 <= cost < math.inf:
            raise ValueError(f"costs[{layer}]={cost!r} is no cost: it has to be 0 or more.")
    starts = [*cut(costs, stages), len(layers)]
    return [_stage(named[first:end]) for first, end in pairwise(starts)]


def _stage(named: Sequence[tuple[str, nn.Module]]) -> nn.Module:
    layers = OrderedDict(named)
    if len(layers) < len(named):  # one layer twice
        return nn.Sequential(*(layer for _, layer in named))
    return nn.Sequential(layers)


def cut(costs: Sequence[float], stages: int) -> list[int]:
    """Where each of `stages` runs of `costs` starts, so that the largest sum of a run is smallest;
    among several such cuts, one with the runs before the last as cheap as possible."""
    until = [0.0, *accumulate(costs)]  # cost of the first k layers
    best = [(cost, [0]) for cost in until]  # of one stage
    for stage in range(1, stages):
        # The last run starts at `stage` or later: each earlier one has a layer or more.
        best = [
            min(
                ((max(best[i][0], until[k] - until[i]), [*best[i][1], i]) for i in range(stage, k)),
                default=(math.inf, []),
            )
            for k in range(len(until))
        ]
    return best[-1][1]


def measure(layers: Sequence[nn.Module], inputs: torch.Tensor) -> list[float]:
    """Seconds of forward and backward of each layer, one after the other from `inputs`."""
    seconds = []
    for layer in layers:
        times = []
        for _ in range(REPEATS):
            # A leaf with a gradient: in a pipeline the previous stage would wait for it.
            x = inputs.detach().clone().requires_grad_(inputs.is_floating_point())
            start = perf_counter()
            output = layer(x.clone())  # a layer may work in place, which a leaf does not allow
            if output.requires_grad:
                parameters = [p for p in layer.parameters() if p.requires_grad]
                wanted = [*parameters, *([x] if x.requires_grad else [])]
                torch.autograd.grad(output, wanted, torch.ones_like(output), allow_unused=True)
            times.append(perf_counter() - start)
        seconds.append(median(times))
        inputs = output.detach()
    return seconds


def children_in_order(model: nn.Module) -> list[nn.Module]:
    """The children of `model` in the order in which they run. Raises ValueError where its forward
    does more than call them."""
    return [child for _, child in named_in_order(model)]


def named_in_order(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """As `children_in_order`, each with its name in `model`."""
    if isinstance(model, nn.Sequential) and type(model).forward is nn.Sequential.forward:
        # children() lists a layer that is used twice only once.
        return list(zip(model._modules, model, strict=True))
    try:
        graph = _Children().trace(model)
    except Exception as error:
        raise _cannot(model, f"its forward cannot be traced ({error})") from None
    first, *nodes, last = graph.nodes
    before = first
    for node in nodes:
        if node.op != "call_module" or node.args != (before,) or node.kwargs:
            raise _cannot(model, f"its forward does more than that at {node.name!r}")
        before = node
    if last.args != (before,):
        raise _cannot(model, "its forward returns something else")
    return [(node.target, model.get_submodule(node.target)) for node in nodes]


class _Children(fx.Tracer):
    """Traces the calls of a module's children, and nothing inside them."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def _cannot(model: nn.Module, why: str) -> ValueError:
    return ValueError(
        f"{type(model).__name__} cannot be cut into runs of its children, one after the other: "
        f"{why}; use an nn.Sequential, or give the list of stages yourself."
    )

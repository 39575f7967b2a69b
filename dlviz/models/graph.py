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

Source: A. Mirhoseini et al., "Device Placement Optimization with Reinforcement Learning", ICML
2017, section 3 (co-location groups).
"""

from __future__ import annotations

import copy
import statistics
import time
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dlviz.counts import check_counts
from dlviz.models.groups import OperatorGroup, grouped
from dlviz.models.operators import BATCH, BY, exported, tensor_of, traced

REPEATS = 3  # steps that are measured, after one that is not


class Node(NamedTuple):
    """What a device does in a training step: the forward of a group (kind "F"), its backward ("B"),
    or the sum of the gradients of its value on a device that uses it ("G")."""

    kind: str
    group: int
    device: int


class PlacedGraph(NamedTuple):
    """What devices do by one placement: `nodes` in an order in which they could run, their sim
    `graph`, and the device of each node."""

    nodes: list[Node]
    graph: Any
    placement: list[int]


@dataclass(frozen=True)
class OperatorGraph:
    """Groups of operators, parents before children. `parents` of each by index, seconds of its
    `forward` and `backward`, `nbytes` of the value that others need, `weights`: bytes of its
    parameters and buffers. `forms`: shape and dtype of each value, `graded`: those that get a
    gradient, `returned`: those of which a group has one. `clones`: its operators may work in place,
    on copies. It holds no tensor of the module, so that a rank can send it."""

    groups: tuple[OperatorGroup, ...]
    output: str
    constants: Mapping[str, Any]
    clones: bool
    parents: tuple[tuple[int, ...], ...]
    forward: tuple[float, ...] = ()
    backward: tuple[float, ...] = ()
    nbytes: tuple[int, ...] = ()
    gradient_nbytes: tuple[int, ...] = ()
    weights: tuple[int, ...] = ()
    forms: dict[str, tuple[torch.Size, torch.dtype]] = field(default_factory=dict)
    graded: frozenset[str] = frozenset()
    returned: tuple[frozenset[str], ...] = ()

    def __len__(self) -> int:
        return len(self.groups)

    @cached_property
    def graph(self) -> Any:
        """The forward, a dlviz.sim.Graph: s, bytes."""
        from dlviz.sim.placement import Graph

        return Graph(self.forward, self.parents, self.nbytes, self.weights)

    @cached_property
    def whole(self) -> Any:
        """A step with forward and backward of a group in one: a value's bytes count with those of
        its gradient."""
        from dlviz.sim.placement import Graph

        seconds = [a + b for a, b in zip(self.forward, self.backward, strict=True)]
        nbytes = [a + b for a, b in zip(self.nbytes, self.gradient_nbytes, strict=True)]
        return Graph(seconds, self.parents, nbytes, self.weights)

    @cached_property
    def owner(self) -> dict[str, int]:
        """The group that makes each value which others need."""
        return {name: at for at, group in enumerate(self.groups) for name in group.outputs}

    @cached_property
    def owners(self) -> dict[str, int]:
        """The group that has each parameter, and each buffer that may change."""
        return {
            name: at
            for at, own in enumerate(self.groups)
            for name in (*own.parameters, *(own.buffers if self.clones else own.writes.values()))
        }

    def has_backward(self, group: int) -> bool:
        return any(name in self.graded for name in self.groups[group].outputs)

    def training(self, placement: Sequence[int]) -> PlacedGraph:
        """The step of a placement: each gradient of a value is summed on the device that used the
        value, and goes back once."""
        from dlviz.sim.placement import Graph

        nodes = [Node("F", group, placement[group]) for group in range(len(self))]
        parents: list[list[int]] = [list(own) for own in self.parents]
        backward: dict[int, int] = {}
        for group in reversed(range(len(self))):
            if not self.has_backward(group):
                continue
            here, own = placement[group], [group]
            by_device: dict[int, list[int]] = {}
            for child, returned in enumerate(self.returned):
                if returned & {*self.groups[group].outputs}:
                    by_device.setdefault(placement[child], []).append(backward[child])
            for device in sorted(by_device):
                if device == here:
                    own += by_device[device]
                    continue
                own.append(len(nodes))
                nodes.append(Node("G", group, device))
                parents.append(by_device[device])
            backward[group] = len(nodes)
            nodes.append(Node("B", group, here))
            parents.append(own)
        seconds = {"F": self.forward, "B": self.backward, "G": [0.0] * len(self)}
        nbytes = {"F": self.nbytes, "B": [0] * len(self), "G": self.gradient_nbytes}
        graph = Graph(
            [seconds[each.kind][each.group] for each in nodes],
            parents,
            [nbytes[each.kind][each.group] for each in nodes],
        )
        return PlacedGraph(nodes, graph, [each.device for each in nodes])

    def compute(
        self,
        group: int,
        module: nn.Module,
        values: Mapping[str, torch.Tensor],
        graded: Container[str] | None = None,
    ) -> Computed:
        """The forward of a group, given the batch and the values of other groups that it needs;
        its buffers are written."""
        own, graded = self.groups[group], self.graded if graded is None else graded
        leaves = {name: values[name].detach().requires_grad_(name in graded) for name in own.inputs}

        def held(name: str) -> torch.Tensor:
            constant = self.constants.get(name)
            return tensor_of(module, name) if constant is None else constant.to(batch.device)

        batch = values[BATCH]
        found: dict[str, Any] = {BATCH: batch}
        found |= {name: leaf.clone() if self.clones else leaf for name, leaf in leaves.items()}
        given = {name: found[name]._version for name in own.inputs}
        for operator in own.operators:
            found[operator.name] = operator.run(module, found, held)
        for value, buffer in own.writes.items():
            owner, _, name = buffer.rpartition(".")  # a new tensor: backward needs the old one
            module.get_submodule(owner)._buffers[name] = found[value].detach()
        changed = [name for name, version in given.items() if found[name]._version != version]
        return Computed(leaves, {name: found[name] for name in own.outputs}, changed)


class Computed(NamedTuple):
    """A group's forward: its inputs as `leaves`, its `outputs`, the inputs that it `changed`."""

    leaves: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]
    changed: list[str]

    def backward(self, gradients: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Given the gradients of its outputs, those of its inputs; those of its parameters are
        added to their `.grad`."""
        pairs = [
            (tensor, gradients[name])
            for name, tensor in self.outputs.items()
            if name in gradients and tensor.requires_grad
        ]
        if pairs:
            outputs, given = map(list, zip(*pairs, strict=True))
            torch.autograd.backward(outputs, given)
        return {name: leaf.grad for name, leaf in self.leaves.items() if leaf.grad is not None}


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
    bytes / its memory_bandwidth; None measures it here, the median of REPEATS steps. `like`: the
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
    return _measured(found, copied, batch, device, like)


def _batch(module: nn.Module, shape: Sequence[int]) -> torch.Tensor:
    check_counts(**{f"shape[{dim}]": size for dim, size in enumerate(shape)})
    owners = (each for each in module.modules() if [*each.parameters(recurse=False)])
    first = next(owners, None)
    if isinstance(first, nn.Embedding):
        return torch.zeros(*shape, dtype=torch.int64, device=first.weight.device)
    like = next(module.parameters(), torch.empty(0))
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return drawn.to(like.device, like.dtype)


def _measured(
    graph: OperatorGraph, module: nn.Module, batch: torch.Tensor, device: Any, like: Any
) -> OperatorGraph:
    """`graph` with what a step of the groups shows, one after the other: seconds, bytes, and which
    values have gradients."""
    repeats = 1 if device is not None or like is not None else 1 + REPEATS
    with torch.random.fork_rng():
        steps = [_Step(graph, module, batch, device) for _ in range(repeats)]
    last = steps[-1]
    forward, backward = (
        tuple(statistics.median(own) for own in zip(*rows, strict=True))
        for rows in ([s.forward for s in steps[repeats > 1 :]],
                     [s.backward for s in steps[repeats > 1 :]])
    )  # fmt: skip
    if like is not None:
        forward, backward = like.forward, like.backward
    across = {name for own in graph.groups for name in own.inputs}
    sizes = {name: last.sizes[name] if name in across else 0 for name in last.sizes}
    held = [[*own.parameters, *own.buffers] for own in graph.groups]
    held = [[name for name in own if name not in graph.constants] for own in held]
    return replace(
        graph,
        forward=forward,
        backward=backward,
        nbytes=tuple(sum(sizes[n] for n in own.outputs) for own in graph.groups),
        gradient_nbytes=tuple(
            sum(sizes[n] for n in own.outputs if n in last.graded) for own in graph.groups
        ),
        weights=tuple(sum(tensor_of(module, name).nbytes for name in own) for own in held),
        forms=last.forms,
        graded=frozenset(last.graded),
        returned=tuple(frozenset(own) for own in last.returned),
    )


class _Step:
    """Forward and backward of all groups here: `forward` and `backward` seconds of each, `sizes`:
    bytes of values, `graded` values, and of which values a group `returned` gradients."""

    def __init__(self, graph: OperatorGraph, module: nn.Module, batch: torch.Tensor, device: Any):
        count = range(len(graph))
        values, wanted, done = {BATCH: batch}, set[str](), []
        self.forward, self.backward = [0.0 for _ in count], [0.0 for _ in count]
        self.returned: list[set[str]] = [set() for _ in count]
        users = Counter(name for own in graph.groups for name in own.inputs)
        for at in count:
            with _Priced(device, values, graph.groups[at]) as priced:
                done.append(graph.compute(at, module, values, wanted))
                priced.made = done[-1].outputs
            self.forward[at] = priced.seconds
            for name in done[-1].changed:
                if users[name] > 1:
                    raise ValueError(
                        f"{graph.groups[at].name} changes {name} in place, which other groups "
                        "need: make it work out of place."
                    )
            for name, tensor in done[-1].outputs.items():
                if not isinstance(tensor, torch.Tensor):
                    raise ValueError(
                        f"{graph.groups[at].name} has a {type(tensor).__name__} as its value "
                        f"{name}, which no rank can send: let it return a tensor."
                    )
                values[name] = tensor
                wanted |= {name} if tensor.requires_grad else set()
        output = values[graph.output]
        gradients = {graph.output: torch.ones_like(output)} if output.requires_grad else {}
        for at in reversed(count):
            own = {name: gradients[name] for name in graph.groups[at].outputs if name in gradients}
            with _Priced(device, own, graph.groups[at]) as priced:
                found = priced.made = done[at].backward(own)
            self.backward[at] = priced.seconds if own else 0.0
            self.returned[at] = {*found}
            for name, gradient in found.items():
                gradients[name] = gradients[name] + gradient if name in gradients else gradient
        self.graded = {*gradients}
        self.sizes = {name: tensor.nbytes for name, tensor in values.items()}
        self.forms = {name: (each.shape, each.dtype) for name, each in values.items()}
        module.zero_grad()


class _Priced:
    """The seconds of what is inside: measured, or the FLOPs over a device's, or without products
    the bytes of what it takes and has `made` over its memory bandwidth."""

    made: Mapping[str, torch.Tensor] = {}

    def __init__(self, device: Any, takes: Mapping[str, torch.Tensor], group: OperatorGroup):
        self._device, self._counter = device, FlopCounterMode(display=False)
        names = (*group.inputs, *group.outputs)
        self._taken = sum(takes[name].nbytes for name in names if name in takes)

    def __enter__(self) -> _Priced:
        if self._device is not None:
            self._counter.__enter__()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *error: Any) -> None:
        self.seconds = time.perf_counter() - self._start
        if self._device is None:
            return
        self._counter.__exit__(*error)
        flops = self._counter.get_total_flops()
        moved = self._taken + sum(each.nbytes for each in self.made.values())
        self.seconds = flops / self._device.flops or moved / self._device.memory_bandwidth


class GraphNet(nn.Module):
    """A net with a child for each group of a graph, by `parents`: tanh(w sum(x) + b) of its
    parents' values x, or of the batch, (B, 8) each. By "children", `graph_of` gives it the
    graph's groups, where no group but the last is without a child."""

    def __init__(self, parents: Sequence[Sequence[int]]):
        super().__init__()
        self.parents = [[*own] for own in parents]
        for group in range(len(parents)):
            self.add_module(f"{group}", GroupLayer())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values: list[torch.Tensor] = []
        for group, own in enumerate(self.parents):
            values.append(self.get_submodule(f"{group}")(*([values[p] for p in own] or [x])))
        return values[-1]


class GroupLayer(nn.Linear):
    """A group of a GraphNet."""

    def __init__(self):
        super().__init__(8, 8)

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return torch.tanh(super().forward(torch.stack(values).sum(0)))

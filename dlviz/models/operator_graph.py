"""Groups of operators as data: what each needs, takes and gives,
and what a placement makes of them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import nn

from dlviz.models.groups import OperatorGroup
from dlviz.models.operators import BATCH, tensor_of


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

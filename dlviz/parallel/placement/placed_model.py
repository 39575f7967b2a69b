"""A rank's part of a placed model: its groups in the order of the plan, and its messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.machine.topology import PICOSECONDS
from dlviz.models.operator_graph import Computed, Node, OperatorGraph, PlacedGraph
from dlviz.models.operators import BATCH
from dlviz.parallel.pipeline.saved_activations import SavedActivations
from dlviz.parallel.step.sharded_step import Loss
from dlviz.sim.placement import Devices, search
from dlviz.sim.placement.player import player_of


class RankPlan(NamedTuple):
    """What a rank does in `order`, to which ranks the value of a group `sends`, the most urgent
    first, and how many `seconds` the whole takes, as played."""

    order: list[Node]
    sends: dict[int, list[int]]
    seconds: float


class PlacedModel:
    """This rank's groups of `operators`, whose parameters and buffers `module` has. `placement`:
    the rank of each group, or the search method that finds it. `seconds`: of a step, as played.
    Raises ValueError for a placement without a rank for each group, with an unknown one, or over
    the devices' memory."""

    def __init__(
        self,
        comm: Comm,
        module: nn.Module,
        operators: OperatorGraph,
        placement: str | Sequence[int],
        devices: Devices,
    ):
        self.comm, self.module, self.operators = comm, module, operators
        if isinstance(placement, str):
            placement = search(operators.whole, devices, placement).placement
        self.placement = player_of(operators.graph, devices).checked(placement)
        nodes = [Node("F", group, rank) for group, rank in enumerate(self.placement)]
        self.forward = self._plan(PlacedGraph(nodes, operators.graph, self.placement), devices)
        self.whole = operators.training(self.placement)
        self.step = self._plan(self.whole, devices)
        self.seconds = self.step.seconds
        self.home = self.placement[operators.owner[operators.output]]

    def _plan(self, whole: PlacedGraph, devices: Devices) -> RankPlan:
        """This rank's part of `whole`, as it is played."""
        player, nodes = player_of(whole.graph, devices), whole.nodes
        makespan, starts, _ = player.run(whole.placement)
        order = sorted(range(len(nodes)), key=lambda at: (starts[at], at))
        order = [nodes[at] for at in order if nodes[at].device == self.comm.rank]
        sends: dict[int, list[int]] = {}
        for user in player.by_rank:  # the most urgent first
            kind, group, rank = nodes[user]
            for parent in self.operators.parents[group] if kind == "F" else ():
                to = sends.setdefault(parent, [])
                if rank != self.placement[parent] and rank not in to:
                    to.append(rank)
        return RankPlan(order, sends, makespan / PICOSECONDS)

    def take(self) -> list[nn.Parameter]:
        """Free what other ranks' groups hold; returns the trained parameters of this rank's.
        Parameters that no group needs are rank 0's."""
        owners = self.operators.owners
        named = [*self.module.named_parameters(), *self.module.named_buffers()]
        rank = {id(each): self.placement[owners[name]] if name in owners else 0
                for name, each in named}  # fmt: skip
        shared = {id(each) for name, each in self.module.named_buffers() if name not in owners}
        foreign = {each for each, its in rank.items() if its != self.comm.rank} - shared
        for module in self.module.modules():
            for own in cast("Sequence[dict[str, Any]]", (module._parameters, module._buffers)):
                for name, each in own.items():
                    if each is not None and id(each) in foreign:
                        meta = each.to("meta")
                        if isinstance(each, nn.Parameter):
                            meta = nn.Parameter(meta, each.requires_grad)
                        own[name] = meta
        held = [p for p in self.module.parameters() if not p.is_meta]
        buffers = [each for each in self.module.buffers() if not each.is_meta]
        self.comm.memory("weights", sum(each.nbytes for each in (*held, *buffers)))
        return [p for p in held if p.requires_grad]

    def run(self, batch: torch.Tensor, labels: Any = None, loss: Loss | None = None) -> Any:
        """The forward of a `batch`, and with a `loss` the backward, whose gradients stay in the
        module. On the rank `home` it returns the loss, or without one the output; on the others
        None. All ranks call it.

        Cost: each value goes once to each other rank with a group that needs it, and with a `loss`
        as many bytes of gradients come back."""
        values, gradients = {BATCH: batch}, dict[str, torch.Tensor]()
        running: dict[int, Computed] = {}
        held: dict[int, dict[int, tuple[int, int]]] = {}  # what a group has saved, by storage
        sends: list[Any] = []
        saved, result = SavedActivations(self.module), None
        plan = self.forward if loss is None else self.step
        for kind, group, _ in plan.order:
            own = self.operators.groups[group]
            graded = [name for name in own.outputs if name in self.operators.graded]
            if kind == "F":
                self._receive_values(group, values)
                with self._span("forward", group), torch.set_grad_enabled(loss is not None):
                    saved.held = held[group] = {}
                    with saved:
                        running[group] = self.operators.compute(group, self.module, values)
                values |= {name: each.detach() for name, each in running[group].outputs.items()}
                for rank in plan.sends.get(group, ()):
                    sends += [self._send(values[name], rank, group) for name in own.outputs]
            elif kind == "G":
                sends += [
                    self._send(gradients.pop(name, None), self.placement[group], group, name)
                    for name in graded
                ]
            else:
                self._receive_gradients(group, graded, gradients)
                with self._span("backward", group):
                    if self.operators.output in own.outputs:
                        assert loss is not None  # else there is no backward
                        result = self._loss(running[group], labels, loss, gradients)
                    for name, each in running.pop(group).backward(gradients).items():
                        gradients[name] = gradients[name] + each if name in gradients else each
                del held[group]
            self.comm.memory("activations", _nbytes(held.values()))
        self.comm.wait_sent(sends)
        if self.comm.rank != self.home or result is not None:
            return result
        output = values[self.operators.output]
        return output if loss is None else loss(output, labels).item()  # nothing is trained

    def _loss(
        self, last: Computed, labels: Any, loss: Loss, gradients: dict[str, torch.Tensor]
    ) -> float:
        """The loss of the output, whose gradient is put among the others."""
        leaf = last.outputs[self.operators.output].detach().requires_grad_()
        root = loss(leaf, labels)
        root.backward()
        mine = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        name = self.operators.output
        gradients[name] = gradients[name] + mine if name in gradients else mine
        return root.item()

    def _receive_values(self, group: int, values: dict[str, torch.Tensor]) -> None:
        for parent in self.operators.parents[group]:
            for name in self.operators.groups[parent].outputs:
                if name not in values:
                    values[name] = self._receive(name, self.placement[parent], parent)

    def _receive_gradients(
        self, group: int, graded: Sequence[str], gradients: dict[str, torch.Tensor]
    ) -> None:
        for kind, of, rank in self.whole.nodes:
            for name in graded if (kind, of) == ("G", group) else ():
                sums = self._receive(name, rank, group + len(self.operators))
                gradients[name] = gradients[name] + sums if name in gradients else sums

    def _send(
        self, tensor: torch.Tensor | None, rank: int, group: int, gradient_of: str | None = None
    ) -> Any:
        """Start to send a value of `group`, or a gradient (None: zeros)."""
        if gradient_of is not None:
            group += len(self.operators)
            tensor = self._empty(gradient_of).zero_() if tensor is None else tensor
        assert tensor is not None  # a value
        return self.comm.isend(tensor.contiguous(), rank, group)

    def _receive(self, name: str, rank: int, tag: int) -> torch.Tensor:
        tensor = self._empty(name)
        self.comm.recv(tensor, rank, tag)
        return tensor

    def _empty(self, name: str) -> torch.Tensor:
        shape, dtype = self.operators.forms[name]
        return torch.empty(shape, dtype=dtype, device=self.comm.device)

    def _span(self, kind: str, group: int) -> Any:
        seconds = getattr(self.operators, kind)[group]
        return self.comm.compute(kind, self.operators.groups[group].name, seconds, stage=group)


def _nbytes(held: Iterable[dict[int, tuple[int, int]]]) -> int:
    """Bytes of activations, each storage once."""
    whole: dict[int, tuple[int, int]] = {}
    for own in held:
        for storage, (first, end) in own.items():
            before = whole.get(storage, (first, end))
            whole[storage] = min(first, before[0]), max(end, before[1])
    return sum(end - first for first, end in whole.values())

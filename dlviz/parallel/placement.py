"""Any placement of a model's operators on ranks: each rank computes its groups, and values go to
the ranks that need them.

    rank 0   forward a | forward c            | backward c | backward a | update
                   \\ value of a                     / its gradient
    rank 1             | forward b |          | backward b |            | update

The forward is exported, not written again: `graph_of` makes groups of operators, and a search
places them. A rank runs its groups in the order in which dlviz.sim.play would, the schedule of this
placement. A value goes once to each other rank that needs it; the gradients of a value that a rank
has used come back as one sum. A parameter that several groups use is a value as well, so that one
rank holds it and updates it. Every rank has the whole batch.

    value of group g          tag g
    gradient of that value    tag g + groups

Source: A. Mirhoseini et al., "Device Placement Optimization with Reinforcement Learning", ICML
2017. In TensorFlow: tf.device; in PyTorch: `x.to(device)` between modules.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Unpack, cast

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.counts import check_counts
from dlviz.machine import Chance, Link
from dlviz.machine.topology import PICOSECONDS
from dlviz.models.graph import Computed, Node, OperatorGraph, PlacedGraph, graph_of
from dlviz.models.operators import BATCH
from dlviz.parallel.model.layer_split import whole_state
from dlviz.parallel.pipeline.saved_activations import SavedActivations
from dlviz.parallel.step.batches import Batches, on
from dlviz.parallel.step.prices import pricing
from dlviz.parallel.step.replicas import check_same_model
from dlviz.parallel.step.sharded_step import Loss, Losses, Weight, check_weighs, rows
from dlviz.parallel.step.training import Options, Result, Training, joint_norm
from dlviz.parallel.step.whole_model import Assembled
from dlviz.parallel.update_rules import AnyRule
from dlviz.sim.placement import METHODS, Devices, search
from dlviz.sim.placement.player import player_of

HERE = Link(1e-4, 1e9)  # between processes of one computer, about


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


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    placement: str | Sequence[int] = "layers",
    by: str = "operators",
    device_bytes: int | None = None,
    link: Link | None = None,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    **options: Unpack[Options],
) -> Result:
    """Train `model`, its groups of operators on the ranks of a `placement`, one step for each whole
    (inputs, labels) of `batches`. A worker for `launch`.

    `placement`: the rank of each group, or a method of dlviz.sim.search that finds it;
    `by` as in `models.graph.graph_of`. `device_bytes`: of parameters and buffers that a rank may
    hold (None: no limit). `link`: what a message costs; None for the machine's, or on a run that is
    not paced HERE. A rank frees parameters of other ranks' groups; it starts from its own values.

    A group takes what the machine says: its `step` (each group's), or the FLOPs over its device's;
    not paced, what rank 0 measures before training. With dropout each rank draws its own masks.

    The Result also has `placement`, `groups` (how many) and `predicted_seconds` of a step, all
    updates left out; as `state`, on rank 0, the trained parameters and buffers.

    Raises ValueError, before training, for a model that torch.export cannot export (`graph_of`), a
    placement with an unknown rank, without one for each group or over `device_bytes`, and where two
    ranks hold different models.
    """
    if isinstance(placement, str) and placement not in METHODS:
        raise ValueError(
            f"placement={placement!r} is unknown: give the rank of each group, or one of "
            f"{', '.join(METHODS)}."
        )
    check_same_model(comm, model)
    whole = Assembled(comm, model, options)
    model.to(comm.device)
    state = partial(whole_state, comm, model)
    training = Training(
        comm, model, rule, lr, options, loss, weight, whole=partial(whole.model, state)
    )
    training.moves.norm = partial(joint_norm, comm)
    pairs = training.read(batches, "a placement")
    devices = devices_of(comm, link, device_bytes)
    shapes = copy.deepcopy(model).to("meta")  # from which rank 0 knows batches of other shapes
    known: dict[torch.Size, PlacedModel] = {}
    losses, placed = Losses(comm), None
    for step, batch in enumerate(comm.progress(pairs, "training")):
        inputs, labels = on(comm.device, batch)
        check_weighs(loss, weight, inputs, labels)
        if inputs.shape not in known:
            like = None if placed is None else placed.operators
            operators = operators_of(comm, model if like is None else shapes, inputs, by, like)
            where = placement if placed is None else placed.placement
            known[inputs.shape] = PlacedModel(comm, model, operators, where, devices)
            if placed is None:
                training.parameters = known[inputs.shape].take()
                training.moves.bind(training.parameters)
            comm.start_line()  # rank 0 alone has exported
        placed = known[inputs.shape]
        with comm.span("phase", f"step {step}", step=step):
            model.zero_grad()
            comm.memory("gradients", 0)
            value = placed.run(inputs, labels, loss)
            gradients = (p.grad for p in training.parameters)
            comm.memory("gradients", sum(each.nbytes for each in gradients if each is not None))
            training.update()
            mean = math.nan if value is None else value
            losses.add(step, value is not None, mean)
            training.end_step(step, value is not None, mean)
    more: dict[str, Any] = {}
    if placed is not None:
        more = {"groups": len(placed.operators), "placement": placed.placement}
        more["predicted_seconds"] = placed.seconds
    return training.result(losses.means(), state(), **more)


def measure(
    comm: Comm,
    module: nn.Module,
    operators: OperatorGraph,
    placements: Sequence[Sequence[int]],
    batch: torch.Tensor,
    *,
    repeats: int = 5,
    link: Link | None = None,
) -> list[list[float]]:
    """Seconds of the forward of `batch` by each of `placements`, `repeats` times: from the first
    start to the end on the last rank, by the processors' clock, also where a run is paced. A worker
    for `launch`; `operators` is `graph_of` the module. On every rank the same."""
    check_counts(repeats=repeats)
    devices = devices_of(comm, link)
    starts, ends = torch.empty(2, len(placements), repeats, dtype=torch.float64)
    for row, placement in enumerate(placements):
        placed = PlacedModel(comm, module, operators, placement, devices)
        for column in range(repeats):
            comm.start_line()
            starts[row, column] = time.monotonic()
            placed.run(batch)
            comm.hold()
            ends[row, column] = time.monotonic()
    comm.all_reduce(starts, "min")
    comm.all_reduce(ends, "max")
    return (ends - starts).tolist()


def devices_of(comm: Comm, link: Link | None = None, device_bytes: int | None = None) -> Devices:
    """The ranks as devices: with the machine's link and factors on a paced run."""
    machine = comm.machine
    factors = None
    if machine is not None and comm.size > 1 and link is None:
        path = machine.topology.path(0, 1)
        link = Link(path.latency, path.bandwidth)
    if machine is not None and machine.factors is not None:
        factors = [1.0 if isinstance(each, Chance) else each for each in machine.factors]
    return Devices(comm.size, link or HERE, factors, device_bytes)


def operators_of(
    comm: Comm, model: nn.Module, inputs: torch.Tensor, by: str, like: OperatorGraph | None
) -> OperatorGraph:
    """The graph that rank 0 makes of `model`, on every rank; ValueError on every rank if it
    cannot."""
    found: Any = None
    if comm.rank == 0:
        try:
            batch = inputs if like is None else inputs.to("meta")
            found = graph_of(model, batch, by=by, device=pricing(comm), like=like)
        except ValueError as error:
            found = error
    found = comm.broadcast_object(found)
    if isinstance(found, ValueError):
        raise found
    machine = comm.machine
    if machine is None or machine.step is None:
        return found
    forward = (machine.seconds("forward"),) * len(found)
    has = (found.has_backward(group) for group in range(len(found)))
    backward = tuple(machine.seconds("backward") if each else 0.0 for each in has)
    return replace(found, forward=forward, backward=backward)

"""The messages of each axis, computation and memory of a mesh, counted from the Trace."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import dlviz
from dlviz.machine import classroom
from dlviz.metrics import COMPUTE
from dlviz.models import Transformer
from dlviz.parallel import hybrid
from dlviz.parallel.hybrid.checks import mesh_of
from dlviz.parallel.hybrid.parts import transformer_part
from dlviz.parallel.update_rules import SGD
from dlviz.schedules import make
from dlviz.sim import transformer_flops

# The Transformer of lab 10: 8 ranks as 2 x 2 x 2, 4 microbatches of 2 sequences a replica.
LAYERS, H, HEADS, V, S = 4, 64, 4, 128, 64
B, M = 2, 4
X = 4 * B * S * H  # bytes of what a block takes and gives, of a microbatch
MESH = {"dp": 2, "pp": 2, "tp": 2}
SCHEDULES = ["1f1b", "zb_h1", "gpipe"]
P = sum(p.numel() for p in Transformer(LAYERS, H, HEADS, V, S).parameters())
BLOCK = (11 * H * H + 6 * H) // 2 + H * H // 2 + H // 2 + 6 * H  # numbers of a rank of tp
HELD = [2 * BLOCK + V * H // 2 + S * H, 2 * BLOCK + V * H // 2 + 2 * H]  # by stage
PARAMETERS = [2 * 16 + 2, 2 * 16 + 3]


class Live(TorchDispatchMode):
    """Counts the bytes of all live tensors; a tensor on the meta device has none."""

    def __init__(self):
        super().__init__()
        self.storages: dict[int, tuple[Any, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and not tensor.is_meta:
                storage = tensor.untyped_storage()
                self.storages[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        alive = {key: (ref, n) for key, (ref, n) in self.storages.items() if not ref.expired()}
        self.storages = alive
        self.peak = max(self.peak, sum(nbytes for _, nbytes in alive.values()))
        return out


def text():
    tokens = torch.randint(1, V, (2 * M * B, S + 1), generator=torch.Generator().manual_seed(0))
    return tokens[:, :-1], tokens[:, 1:]


def empty_model():
    with torch.device("meta"):
        return Transformer(LAYERS, H, HEADS, V, S, dropout=0.1)


def worker(comm):
    """A step by each schedule; then what a rank builds of the model."""
    for schedule in SCHEDULES:
        hybrid.train(comm, empty_model(), [text()], **MESH, schedule=schedule, clip=1.0)
    mesh = mesh_of(comm, MESH, ("dp", "pp", "tp"))
    with Live() as live:
        part = transformer_part(mesh, empty_model(), make("1f1b", 2, M), "ring", False)
    held = {name: p.numel() for name, p in part.net.named_parameters()}
    turned = mesh_of(comm, MESH, ("tp", "pp", "dp"))
    groups = {axis: getattr(turned, axis).members for axis in MESH}
    return mesh.dp.rank, mesh.pp.rank, held, live.peak, groups


@pytest.fixture(scope="module")
def run():
    return dlviz.launch(worker, 8, machine=classroom(8, step=None))


def on(trace, rank):
    """The columns of a rank's spans on its first lane, in the order in which they began."""
    spans = trace.spans
    mine = np.flatnonzero((spans.rank == rank) & (spans.lane == "compute"))
    return mine[np.lexsort((-spans.end[mine], spans.start[mine]))]


def steps(trace, rank):
    """(start, end) of a rank's steps, one of each schedule."""
    spans, mine = trace.spans, on(trace, rank)
    found = [n for n in mine if spans.kind[n] == "phase" and spans.name[n] == "step 0"]
    return [(spans.start[n], spans.end[n]) for n in found]


def test_each_axis_carries_exactly_the_bytes_of_its_formula(run):
    messages = run.trace.messages
    for rank in range(8):
        sent = {}
        for axis in MESH:
            of = [
                m
                for m in np.flatnonzero(messages.src == rank)
                if messages.group[m].startswith(axis)
            ]
            sent[axis] = messages.nbytes[of].sum() // len(SCHEDULES)
        stage = rank // 2 % 2
        layers = 2 * 2 * 2 * M * X  # two blocks, two all-reduces of each per direction
        loss = 3 * M * 4 * B * S if stage else 0
        assert layers == 1_048_576 and M * X == 131_072
        assert sent["tp"] == layers + M * X + loss + 8  # and the embedding's or the logits', a norm
        tied, mean = 4 * V * H // 2, 8 * stage  # the loss goes from the last stage to the first
        assert sent["pp"] == M * X + tied + mean + 8
        assert sent["dp"] == 4 * (HELD[stage] + PARAMETERS[stage] + 1)  # 2(d-1)/d of it, d = 2
        assert len(messages.src) == sum(
            np.char.startswith(np.array(messages.group[:], dtype=str), axis).sum() for axis in MESH
        )


def test_each_axis_runs_the_same_number_of_all_reduces_by_every_schedule(run):
    spans = run.trace.spans
    for rank in range(8):
        counts = []
        for start, end in steps(run.trace, rank):
            inside = [
                n for n in on(run.trace, rank)
                if spans.kind[n] == "collective" and start <= spans.start[n] < end
            ]  # fmt: skip
            groups = [spans.group[n].split()[0] for n in inside]
            counts.append({axis: groups.count(axis) for axis in MESH})
        stage = rank // 2 % 2
        tp = M * (2 * 4 + 1 + 3 * stage) + 1
        assert counts == [{"dp": 1, "pp": 1, "tp": tp}] * len(SCHEDULES), (
            "a norm is summed over tp and pp"
        )


def test_an_action_is_its_layers_and_what_they_send_and_nothing_is_charged_twice(run):
    spans, computed = run.trace.spans, {}
    for rank in range(8):
        mine = on(run.trace, rank)
        actions = [n for n in mine if spans.kind[n] == "phase" and spans.stage[n] >= 0
                   and spans.name[n][:1].isdigit()]  # fmt: skip
        assert len(actions) == M * 2 + M * 3 + M * 2
        math = [n for n in mine if spans.kind[n] in COMPUTE]
        sent = [n for n in mine if spans.kind[n] == "collective"]
        waits = [n for n in mine if spans.kind[n] in ("wait", "send", "recv")]
        for n in math:
            inside = (spans.start[waits] > spans.start[n]) & (spans.start[waits] < spans.end[n])
            assert not inside.any(), "waiting in a compute span"
        for n in actions:
            start, end = spans.start[n], spans.end[n]
            parts = [
                each
                for each in math + sent
                if start - 1e-9 <= spans.start[each] and spans.end[each] <= end + 1e-9
            ]
            of = [each for each in parts if spans.kind[each] in COMPUTE]
            assert of and {spans.stage[each] for each in of} == {spans.stage[n]}
            assert {spans.microbatch[each] for each in of} == {spans.microbatch[n]}
            kinds = {
                "F": "forward",
                "B": "backward",
                "I": "backward_input",
                "W": "backward_weight",
            }
            assert {spans.kind[each] for each in of} == {kinds[spans.name[n][1]]}
            took = sum(spans.end[each] - spans.start[each] for each in parts)
            assert took == pytest.approx(end - start, abs=1e-9), spans.name[n]
        for place, (start, end) in enumerate(steps(run.trace, rank)):
            of = [n for n in math if start <= spans.start[n] < end and spans.kind[n] != "update"]
            computed[rank, place] = sum(spans.end[n] - spans.start[n] for n in of)
        # I and W of a layer take what its B takes.
        assert [computed[rank, place] for place in (1, 2)] == pytest.approx(
            2 * [computed[rank, 0]], abs=1e-9
        )


def test_attentions_products_take_their_flops_and_no_part_of_w(run):
    spans = run.trace.spans
    own = spans[np.char.endswith(spans.name.astype(str), ".attention")]
    took = own.end - own.start
    square = 4 * B * S * S * H / 2 / 1e9  # FLOPs of one of two ranks, at 1 GFLOP/s
    actions = 8 * LAYERS // 2 * M
    for kind, times, many in (
        ("forward", 1, 3 * actions), ("backward", 2, 2 * actions), ("backward_input", 2, actions)
    ):  # fmt: skip
        assert took[own.kind == kind] == pytest.approx([times * square] * many)
    assert len(own) == 6 * actions


def test_the_products_of_all_ranks_are_those_of_one_process(run):
    """`transformer_flops` is what torch counts in it (test_sim_plans.py)."""
    spans = run.trace.spans
    between = ("norm", "norm1", "norm2", "positions")  # these have no product
    product = [name.split(".")[-1] not in between for name in spans.name]
    math = np.isin(spans.kind, COMPUTE) & (spans.kind != "update") & product
    took = (spans.end - spans.start)[math].sum()
    step = transformer_flops(LAYERS, H, V, S, 2 * M * B)
    assert took * 1e9 == pytest.approx(len(SCHEDULES) * step, rel=1e-9)


def test_a_wait_for_a_send_names_its_axis(run):
    spans = run.trace.spans
    groups = spans.group[(spans.kind == "wait") & (spans.name == "send")]
    assert "pp (0, 2)" in groups, "the gradient of the tied embedding"
    assert all(group.split()[0] in MESH for group in groups)


def test_no_rank_builds_or_holds_more_than_its_part(run):
    memory = run.trace.memory
    for rank, (_, stage, held, peak, _) in enumerate(run.results):
        assert sum(held.values()) == HELD[stage]
        largest = 4 * 4 * H * H  # of one layer, as it is drawn: less than this at a time
        assert 4 * HELD[stage] <= peak <= 4 * HELD[stage] + largest < 4 * P / 2
        weights = memory.nbytes[(memory.rank == rank) & (memory.what == "weights")]
        assert weights.tolist() == [4 * HELD[stage]] * len(SCHEDULES)


def test_the_parts_add_up_to_the_model_and_the_copies_that_are_listed(run):
    whole = {name: p.numel() for name, p in empty_model().named_parameters()}
    held = dict.fromkeys(whole, 0)
    for replica, _, part, *_ in run.results:
        if replica == 0:
            for name, numbers in part.items():
                held[name] += numbers
    copies = {name: held[name] - numbers for name, numbers in whole.items() if held[name] > numbers}
    blocks = ("norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias",
              "attention.output.bias", "mlp.down.bias")  # fmt: skip
    expected = {f"blocks.{n}.{name}": H for n in range(LAYERS) for name in blocks}
    expected |= {"norm.weight": H, "norm.bias": H, "positions.weight": S * H}
    expected |= {"tokens.weight": V * H}  # tied: in the last stage as well
    assert copies == expected
    assert sum(held.values()) == P + sum(copies.values()) and P == 212_352


def test_the_axis_that_the_order_names_last_has_neighbours(run):
    for rank, (*_, groups) in enumerate(run.results):
        first = rank - rank % 2
        assert groups["dp"] == (first, first + 1)
        assert groups["pp"] == (rank - rank // 2 % 2 * 2, rank - rank // 2 % 2 * 2 + 2)
        assert groups["tp"] == (rank % 4, rank % 4 + 4)
    trained = set(run.trace.messages.group[:])
    assert trained == {f"{axis} {(rank, rank + step)}" for axis, step, firsts in
                       (("dp", 4, range(4)), ("pp", 2, (0, 1, 4, 5)), ("tp", 1, (0, 2, 4, 6)))
                       for rank in firsts}  # fmt: skip


class SlowToSetUp(SGD):
    """Keeps training from its first step for so many seconds."""

    def __init__(self, seconds):
        super().__init__(0.1)
        self.seconds = seconds

    @property
    def state_tensors(self):
        time.sleep(self.seconds)
        return 0


def late_worker(comm):
    stages = [nn.Linear(4, 4), nn.Linear(4, 4)]
    batch = torch.ones(4, 4), torch.zeros(4, 4)
    rule = SlowToSetUp(0.3 * (comm.rank == 1))
    options: Any = {"dp": 1, "pp": 2, "tp": 1, "loss": nn.functional.mse_loss}
    return hybrid.train(comm, stages, [batch], rule, **options)


def test_what_is_set_up_takes_no_device_time_and_all_ranks_begin_the_first_step_together():
    spans = dlviz.launch(late_worker, 2, machine=classroom(2, step=None)).trace.spans
    first = spans.start[(spans.kind == "phase") & (spans.name == "step 0")]
    assert len(first) == 2 and first[0] == first[1] >= 0.3
    assert spans.start[spans.step == 0].min() == first[0]

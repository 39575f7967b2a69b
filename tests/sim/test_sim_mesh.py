"""A mesh's groups and what its ranks send in a step, against comm.mesh and a run's Trace."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz.analysis.axes import axes
from dlviz.cluster import launch
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.sim import mesh_groups, mesh_step, transformer_flops, transformer_parameters

SIZES = {"layers": 4, "hidden": 16, "vocabulary": 32, "sequence": 8}
BATCH, MICROBATCHES = 16, 2
MESHES = [
    {"dp": 2, "pp": 2, "tp": 2},
    {"tp": 2, "dp": 2, "pp": 2},
    {"pp": 4, "tp": 2, "dp": 1},
    {"tp": 4, "pp": 1, "dp": 2},
]
FAST, SLOW = Link(1e-3, 1e8), Link(1e-2, 1e7)


def machine(nodes, ranks=8):
    return Machine(Device("d", 1e9, 1e9, 1e9), Topology.racks(nodes, ranks // nodes, FAST, SLOW))


def step(lengths, on, **other):
    sizes = {**SIZES, "batch": BATCH, "microbatches": MICROBATCHES, **other}
    return mesh_step(lengths, on, **sizes)


def works(comm):
    """The groups of every mesh as its ranks have them; then trains on each."""
    import torch

    from dlviz.models import Transformer
    from dlviz.parallel import hybrid

    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(32, (BATCH, 9), generator=generator)
    batches = [(tokens[:, :-1], tokens[:, 1:])]
    members = []
    for number, lengths in enumerate(MESHES):
        mesh = comm.mesh(**lengths)
        members.append({name: getattr(mesh, name).members for name in lengths})
        model = Transformer(4, 16, 4, 32, 8)
        how = {"order": tuple(lengths), "microbatches": MICROBATCHES}
        with comm.span("phase", f"mesh {number}", mesh=number):
            hybrid.train(comm, model, batches, **lengths, **how)
    return members


def test_groups_and_bytes_are_those_of_a_run():
    run = launch(works, 8)
    trace = run.trace
    spans = trace.spans
    parts = np.flatnonzero(np.char.startswith(spans.name.astype(str), "mesh "))
    sends = np.flatnonzero((spans.kind == "send") & (spans.flow >= 0))
    for number, lengths in enumerate(MESHES):
        predicted = step(lengths, machine(2))
        for rank, members in enumerate(run.results):
            for name, own in members[number].items():
                assert next(g for g in predicted.groups[name] if rank in g) == tuple(own)
        within = [row for row in parts if spans.name[row] == f"mesh {number}"]
        begin = {spans.rank[row]: (spans.start[row], spans.end[row]) for row in within}
        sent = {name: np.zeros((2, 8), np.int64) for name in lengths}
        for row in sends:
            rank, (start, end) = spans.rank[row], begin[spans.rank[row]]
            message = spans.flow[row]
            name = trace.messages.group[message].split(" ")[0]
            if name in sent and start <= spans.start[row] <= end:
                out = rank // 4 != trace.messages.dst[message] // 4
                sent[name][:, rank] += trace.messages.nbytes[message] * np.array([1, out])
        for name in lengths:
            assert sent[name][0].tolist() == predicted.sent[name].tolist(), (lengths, name)
            assert sent[name][1].tolist() == predicted.between[name].tolist(), (lengths, name)
    assert axes(trace)["tp"].sent.sum() == sum(
        step(lengths, machine(2)).sent["tp"].sum() for lengths in MESHES
    )


def test_the_lab_transformer_sends_what_a_reader_counts():
    """2 layers x 4 all-reduces x 4 microbatches of 2 x 64 x 64 numbers, and two of them beside."""
    sizes = {"hidden": 64, "vocabulary": 128, "sequence": 64, "microbatches": 4}
    predicted = step({"dp": 2, "pp": 2, "tp": 2}, machine(2), **sizes)
    one = 2 * 64 * 64 * 4
    assert predicted.sent["tp"][0] == 2 * 4 * 4 * one + 4 * one
    assert predicted.sent["pp"][0] == 4 * one + 64 * 64 * 4
    assert 2e5 < predicted.sent["dp"][0] < 2.5e5


def test_an_axis_takes_its_calls_by_the_links_that_it_crosses():
    """tp of two neighbours: each all-reduce has two rounds of half of its numbers."""
    inside = step({"dp": 2, "pp": 2, "tp": 2}, machine(2))
    between = step({"tp": 2, "pp": 2, "dp": 2}, machine(2))
    tokens = BATCH // (2 * MICROBATCHES) * 8
    layer, loss = (
        2 * (FAST.latency + numbers * 4 / 2 / FAST.bandwidth) for numbers in (tokens * 16, tokens)
    )
    assert inside.seconds["tp"] == pytest.approx(MICROBATCHES * (9 * layer + 3 * loss))
    # four pairs share a node's uplink: the last message waits for three others' bytes
    assert between.seconds["tp"] > 9.9 * inside.seconds["tp"]
    assert between.total > inside.total


def test_a_step_of_one_rank_is_its_products_and_the_update():
    predicted = step({"dp": 1, "pp": 1, "tp": 1}, machine(1, 1))
    flops = transformer_flops(4, 16, 32, 8, BATCH)
    weights = 4 * (transformer_parameters(4, 16, 32, 8) + 2 * 16)
    assert predicted.total == pytest.approx(flops / 1e9 + 3 * weights / 1e9)
    assert not any(sent.any() for sent in predicted.sent.values())


def test_groups_of_axes_of_different_lengths():
    assert mesh_groups({"a": 2, "b": 3}) == {
        "a": [(0, 3), (1, 4), (2, 5)],
        "b": [(0, 1, 2), (3, 4, 5)],
    }


@pytest.mark.parametrize(
    ("lengths", "sizes", "says"),
    [
        ({"dp": 2, "pp": 2, "tp": 1}, {}, "dp=2 x pp=2 x tp=1 is not 8 ranks"),
        ({"dp": 1, "pp": 8, "tp": 1}, {}, "layers=4 are fewer than pp=8 stages"),
        (
            {"dp": 2, "pp": 2, "tp": 2},
            {"vocabulary": 33},
            "vocabulary=33 is not a multiple of tp=2",
        ),
        ({"dp": 2, "pp": 2, "tp": 2}, {"batch": 6}, r"batch=6 is not a multiple of dp \* micro"),
    ],
)
def test_what_does_not_go_together_is_refused(lengths, sizes, says):
    with pytest.raises(ValueError, match=says):
        step(lengths, machine(2), **sizes)

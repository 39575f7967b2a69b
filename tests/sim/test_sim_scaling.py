"""How data parallelism scales, held to closed forms written out by hand."""

from __future__ import annotations

import pytest

import dlviz
from dlviz import models
from dlviz.machine import Link, classroom
from dlviz.metrics import makespan
from dlviz.sim import Layer, data_parallel, data_parallel_seconds, mlp_layers, scaling_curves
from dlviz.sim.scaling import scaled

ALPHA, BETA, NBYTES = 1e-5, 1e-9, 4_000_000
LAB = {"compute": 0.3788, "nbytes": 104_488, "alpha": 5e-3, "beta": 1e-8}  # 5 ms, 100 MB/s


def ring(ranks, nbytes=NBYTES):
    return 2 * (ranks - 1) * (ALPHA + nbytes / ranks * BETA)


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("buckets", [1, 5])
@pytest.mark.parametrize("overlap", [0.0, 0.004, 1.0])
def test_a_step_is_compute_one_all_reduce_and_what_of_the_others_no_backward_hides(
    ranks, buckets, overlap
):
    t = ring(ranks, NBYTES / buckets)
    exposed = max(0, (buckets - 1) * t - overlap)
    costs = (ranks, 0.1, NBYTES, ALPHA, BETA, "ring", buckets, overlap)
    assert data_parallel_seconds(*costs) == pytest.approx(0.1 / ranks + t + exposed, rel=1e-12)
    weak = data_parallel_seconds(*costs, scaling="weak")
    assert weak == pytest.approx(0.1 + t + exposed, rel=1e-12)


@pytest.mark.parametrize("ranks", [1, 4, 16])
def test_a_model_that_grows_with_the_ranks_sends_as_many_times_the_bytes(ranks):
    found = data_parallel_seconds(ranks, 0.1, NBYTES, ALPHA, BETA, scaling="model_weak")
    assert found == pytest.approx(0.1 + ring(ranks, ranks * NBYTES), rel=1e-12)
    times = scaled(ranks, NBYTES, 0.1, ALPHA, BETA, scaling="model_weak").speedup
    assert times == pytest.approx(ranks * 0.1 / found, rel=1e-12)


def test_four_ranks_are_three_times_as_fast_where_communication_is_a_third_of_computation():
    step = data_parallel_seconds(4, **LAB)
    assert step == pytest.approx(0.0947 + 0.0315673, rel=1e-5)
    speedups = [LAB["compute"] / data_parallel_seconds(n, **LAB) for n in (2, 4, 8)]
    assert speedups == pytest.approx([1.89, 3.00, 3.18], abs=0.005)
    assert scaled(4, LAB["nbytes"], LAB["compute"], 5e-3, 1e-8).ratio == pytest.approx(1 / 3, 1e-3)
    naive = data_parallel_seconds(4, **LAB, buckets=7)
    assert naive == pytest.approx(0.0947 + 0.2116, abs=5e-5)
    assert LAB["compute"] / naive == pytest.approx(1.24, abs=0.005)
    weak = LAB["compute"] / data_parallel_seconds(8, **LAB, scaling="weak")
    assert weak == pytest.approx(0.84, abs=0.005)


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("part", [0.0, 0.4, 1.0])
def test_the_overlap_of_the_explorer_is_a_part_of_a_ranks_compute(ranks, part):
    found = scaled(ranks, NBYTES, 0.1, ALPHA, BETA, part, buckets=4)
    own, t = 0.1 / ranks, ring(ranks, NBYTES / 4)
    assert (found.compute, found.communication) == pytest.approx((own, 4 * t))
    assert found.step == pytest.approx(own + t + max(3 * t - part * own, 0))
    assert found.speedup == pytest.approx(0.1 / found.step)
    assert found.ratio == pytest.approx(4 * t / own)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"scaling": "sideways"}, "scaling='sideways' is not known: use 'strong', 'weak' or"),
        ({"overlap": -1.5}, "overlap=-1.5 has to be a number, 0 or more"),
        ({"buckets": 0}, "buckets=0 has to be a whole number, 1 or more"),
        ({"buckets": 2.5}, "buckets=2.5 has to be a whole number"),
        ({"compute": 0.0}, "compute=0.0 has to be a number, above 0"),
        ({"ranks": 0}, "ranks=0 has to be a whole number, 1 or more"),
    ],
)
def test_values_that_cannot_be_are_refused_by_name(values, says):
    known = {"ranks": 4, "nbytes": NBYTES, "compute": 0.1, "alpha": ALPHA, "beta": BETA}
    with pytest.raises(ValueError, match=says):
        data_parallel_seconds(**{**known, **values})


def test_an_overlap_of_more_than_the_compute_is_refused():
    with pytest.raises(ValueError, match=r"overlap=1.5 is not a part of the compute: use 0 to 1"):
        scaled(4, NBYTES, 0.1, ALPHA, BETA, overlap=1.5)


def test_curves_are_the_closed_form_of_each_scaling_with_and_without_overlap():
    curves = scaling_curves(**LAB, buckets=3, overlap=0.5, activations=1e6, ranks=[1, 4, 1024])
    assert [*curves] == [
        name + more
        for name in ("strong", "batch-weak", "model-weak")
        for more in ("", ", 3 buckets overlapped")
    ]
    for curve in curves.values():
        for i, n in enumerate(curve.ranks):
            own = LAB["compute"] / (n if curve.scaling == "strong" else 1)
            overlap = 0.5 * own if curve.buckets > 1 else 0.0
            step = data_parallel_seconds(
                n, **LAB, buckets=curve.buckets, overlap=overlap, scaling=curve.scaling
            )
            work = LAB["compute"] * (1 if curve.scaling == "strong" else n)
            assert curve.speedup[i] == pytest.approx(work / step, rel=1e-12)
    gradients = 2 * LAB["nbytes"]  # and parameters
    assert curves["strong"].memory == pytest.approx([gradients + 1e6 / n for n in (1, 4, 1024)])
    assert curves["batch-weak"].memory == [gradients + 1e6] * 3
    assert curves["model-weak"].memory == [n * gradients + 1e6 for n in (1, 4, 1024)]


# ---------------------------------------------------------------- message by message

LINK = Link(5e-3, 1e8)
ALIKE = [Layer(f"layer {i}", 0.01, 0.02, 256_000) for i in range(4)]


@pytest.mark.parametrize("ranks", [1, 2, 4, 5, 64])
@pytest.mark.parametrize("buckets", [1, 2, 4])
def test_a_simulated_step_of_layers_that_are_alike_lasts_what_the_formula_says(ranks, buckets):
    whole = 4 * 256_000
    trace = data_parallel(ALIKE, classroom(ranks, link=LINK), bucket_bytes=whole / buckets)
    overlap = 0.08 / ranks * (buckets - 1) / buckets  # the backward after the first bucket
    costs = (ranks, 0.12, whole, 5e-3, 1e-8, "ring", buckets)
    assert makespan(trace) == pytest.approx(data_parallel_seconds(*costs, overlap), abs=1e-9)
    apart = data_parallel(
        ALIKE, classroom(ranks, link=LINK), bucket_bytes=whole / buckets, overlap=False
    )
    assert makespan(apart) == pytest.approx(data_parallel_seconds(*costs), abs=1e-9)


@pytest.mark.parametrize("scaling", ["weak", "model_weak"])
@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling", "tree"])
def test_so_does_a_step_in_which_the_batch_or_the_model_grows(scaling, algorithm):
    trace = data_parallel(ALIKE, classroom(8, link=LINK), algorithm=algorithm, scaling=scaling)
    costs = (8, 0.12, 4 * 256_000, 5e-3, 1e-8, algorithm)
    assert makespan(trace) == pytest.approx(
        data_parallel_seconds(*costs, scaling=scaling), abs=1e-9
    )
    bytes_sent = trace.messages.nbytes.sum()
    if algorithm == "ring":
        grown = 8 if scaling == "model_weak" else 1
        assert bytes_sent == 2 * 7 * grown * 4 * 256_000


def test_the_layers_of_an_mlp_are_those_of_the_model_and_cost_two_flop_an_element_and_row():
    layers = mlp_layers((4, 3, 2), batch=5, flops=1e3)
    assert [layer.name for layer in layers] == ["1", "3"]
    assert [layer.forward for layer in layers] == pytest.approx([0.120, 0.060])
    assert [layer.backward for layer in layers] == pytest.approx([0.120, 0.120])
    parameters = dict(models.MLP((4, 3, 2)).named_parameters())
    for name, _, _, nbytes in layers:
        assert nbytes == sum(p.nbytes for own, p in parameters.items() if f".{name}." in f".{own}")
    with pytest.raises(ValueError, match="width=0 has to be a whole number"):
        mlp_layers((4, 0), batch=5, flops=1e3)
    with pytest.raises(ValueError, match="mlp_layers: flops=0 has to be"):
        mlp_layers((4, 3), batch=5, flops=0)


def test_an_update_comes_after_the_last_bucket_on_a_slow_rank_as_many_times_as_long():
    machine = classroom(3, link=LINK, factors=[1, 4, 1])
    trace = data_parallel(ALIKE, machine, update=0.006)
    updates = trace.only(kind="update").spans
    done = trace.only(kind="collective", lane="comm").spans
    took = dict(zip(updates.rank.tolist(), (updates.end - updates.start).tolist(), strict=True))
    assert took == pytest.approx({0: 0.006, 1: 0.024, 2: 0.006})
    for rank in range(3):
        assert updates.start[updates.rank == rank] == done.end[done.rank == rank].max()


def test_a_slow_rank_holds_up_the_others_and_the_path_leads_through_it():
    slow = data_parallel(ALIKE, classroom(4, link=LINK, factors=[1, 1, 3, 1]))
    t = data_parallel_seconds(4, 1e-12, 4 * 256_000, 5e-3, 1e-8)
    assert makespan(slow) == pytest.approx(3 * 0.12 / 4 + t, abs=1e-9)
    path = dlviz.metrics.critical_path(slow)
    computing = {
        int(slow.spans.rank[row])
        for row in path.span
        if slow.spans.kind[row] in ("forward", "backward")
    }
    assert computing == {2}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"layers": []}, "layers=\\[\\] make no step"),
        ({"layers": [Layer("a", -1, 1, 1)]}, "Layer 'a': forward=-1 has to be a number, 0"),
        ({"bucket_bytes": 0}, "data_parallel: bucket_bytes=0 has to be"),
        ({"update": -1}, "data_parallel: update=-1 has to be"),
        ({"scaling": "up"}, "scaling='up' is not known"),
        ({"algorithm": "magic"}, "algorithm='magic' has no pattern"),
    ],
)
def test_a_step_that_cannot_be_simulated_is_refused(values, says):
    known = {"layers": ALIKE, "machine": classroom(2)}
    with pytest.raises(ValueError, match=says):
        data_parallel(**{**known, **values})

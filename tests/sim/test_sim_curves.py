"""Every closed form: a curve from arrays, and what cannot be is refused."""

from __future__ import annotations

import math
from inspect import isfunction

import numpy as np
import pytest

from dlviz import metrics, sim
from dlviz.machine import Device, Link, Topology, classroom
from dlviz.sim import federated
from dlviz.trace import Trace

COSTS = {"forward": 1.0, "backward_input": 1.0, "backward_weight": 1.0}
SIZES = {"layers": 2, "hidden": 8, "sequence": 8}
LINK = {"alpha": 1e-5, "beta": 1e-9}
FORMS = {  # each with an argument of every kind of number that it takes
    metrics.bubble_formula: {"schedule": "1f1b", "ranks": 4, "microbatches": 8, **COSTS},
    metrics.bubble_ratio_formula: {
        "schedule": "interleaved", "ranks": 4, "microbatches": 8, "chunks": 2, **COSTS,
    },
    metrics.algorithm_bandwidth: {"nbytes": 8, "seconds": 1.0},
    metrics.bus_bandwidth: {"collective": "reduce", "ranks": 4, "nbytes": 8, "seconds": 1.0},
    sim.collective_seconds: {
        "algorithm": "tree", "ranks": 4, "nbytes": 64, **LINK, "gamma": 1e-10,
    },
    sim.data_parallel_seconds: {
        "ranks": 4, "compute": 1.0, "nbytes": 64, **LINK, "buckets": 2, "overlap": 0.1,
    },
    sim.activation_bytes: {**SIZES, "heads": 2, "batch": 2, "tensor": 2, "itemsize": 4},
    sim.layer_bytes: {
        "form": "data", "batch": 4, "inputs": 4, "outputs": 4, "ranks": 2, "itemsize": 4,
    },
    sim.transformer_flops: {**SIZES, "vocabulary": 16, "batch": 2},
    sim.transformer_parameters: {**SIZES, "vocabulary": 16},
    sim.matmul_words: {"m": 4, "k": 4, "n": 4, "grid": (2, 1, 1)},
    sim.matmul_lower_bound: {"m": 4, "k": 4, "n": 4, "ranks": 2},
    sim.compressed_seconds: {
        "how": "reduce_scatter", "ranks": 4, "nbytes": 64, **LINK, "encode": 1e-6, "decode": 1e-6,
    },
    sim.expected_union: {"length": 100, "density": 0.1, "ranks": 4},
    sim.factor_bytes: {"samples": 4, "rows": 8, "columns": 6, "ranks": 4},
    sim.factors_win_below: {"rows": 8, "columns": 6, "ranks": 4},
    sim.communication_share: {"speedup": 1.25, "of_communication": 4.0},
    sim.channel_filter_words: {
        "samples": 2, "channels": 4, "filters": 4, "height": 4, "width": 4, "p_f": 2, "p_c": 2,
    },
    sim.segmented_share: {"p_n": 4, "p_f": 2},
    sim.weird_trick_wins_below: {"activations": 8, "parameters": 100, "ranks": 2},
    federated.local_steps: {"examples": 10, "epochs": 2, "batch": 4},
    federated.noise_length: {"sigma": 1.0, "parameters": 3, "drawn": 2.0},
    federated.largest_clip: {"clients": 4, "bits": 32},
    federated.client_seconds: {
        "steps": 10, "nbytes": 100, "step": 1e-3, "latency": 1e-2, "bandwidth": 1e6, "exchanges": 2,
    },
    Link(1e-3, 1e9).seconds: {"nbytes": 8},
}  # fmt: skip
OTHERS = {  # that give several numbers
    federated.client_bytes: {"parameters": 10, "bits": 32},
    federated.secure_client_bytes: {"parameters": 10, "clients": 4, "threshold": 2, "clip": 4.0},
    federated.secure_sum_bytes: {"values": 10, "clients": 4, "threshold": 2, "clip": 4.0},
    federated.round_seconds: {"seconds": [1.0, 2.0], "drawn": 2},
    federated.poisson_round_seconds: {"seconds": [1.0, 2.0], "chance": 0.5},
    sim.saved_activations: {"sequence": 8, "batch": 2, "hidden": 8, "heads": 2, "ranks": 2},
    sim.layer_elements: {"form": "data", "batch": 4, "inputs": 4, "outputs": 4},
    sim.scaling_curves: {"compute": 1.0, "nbytes": 64, **LINK, "buckets": 2, "overlap": 0.1},
}


def numbers(call):
    return [name for name, value in call.items() if isinstance(value, int | float)]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__qualname__)
def test_an_array_of_any_number_gives_the_curve_of_the_formula(form):
    call = FORMS[form]
    one = form(**call)
    assert np.ndim(one) == 0
    for name in numbers(call):
        values = call[name] * np.array([1, 2, 3])
        curve = form(**call | {name: values})
        assert isinstance(curve, np.ndarray) and curve[0] == one
        alone = [form(**call | {name: value.item()}) for value in values]
        np.testing.assert_array_equal(curve, alone)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__qualname__)
def test_a_list_of_any_number_is_taken_as_an_array(form):
    call = FORMS[form]
    for name in numbers(call):
        values = [call[name], 2 * call[name]]
        curve = form(**call | {name: np.array(values)})
        for several in (values, tuple(values), [[value] for value in values]):
            found = form(**call | {name: several})
            assert found.shape == np.shape(several) and found.dtype == curve.dtype, name
            np.testing.assert_array_equal(found.ravel(), curve)


def of_numpy(value):
    """The number as numpy has it, in so few bits that a product of two overflows."""
    if isinstance(value, int):
        return np.int8(value)
    return np.float64(value) if isinstance(value, float) else value


LAYER = sim.Layer("w", 1e-3, 1e-3, 120)
NUMBERED = {
    **OTHERS,
    sim.zero_bytes: {"parameters": 64, "ranks": 4, "stage": 2},
    sim.largest_model: {"memory": 64, "ranks": 4, "stage": 2},
    sim.deepspeed_bytes: {"parameters": 64, "ranks": 4, "stage": 3},
    sim.zero_traffic: {"stage": 2, "microbatches": 4},
    sim.recompute_peak: {"layers": 8, "segments": 2},
    sim.best_segments: {"layers": 8},
    sim.workspace_bytes: {"method": "im2col", "batch": 2, "channels": 3, "filters": 4, "kernel": 3,
                          "height": 8, "width": 8},
    sim.best_cut: {"costs": {("fft", 1): (1.0, 1)}, "batch": 2, "limit": 1},
    sim.stream_seconds: {"compute": [1.0, 1.0], "copy": [1.0, 1.0], "prefetch": 1},
    sim.tokens_to_hide: {"flops": 1e12, "bandwidth": 1e9},
    sim.count: {"groups": 10, "devices": 4},
    sim.halo_rows: {"rows": 100, "ranks": 4, "kernel": 3},
    sim.halo_cells: {"height": 100, "width": 100, "grid": (2, 2), "kernel": 3},
    sim.one_weird_trick: {"batch": 100, "activations": 100, "parameters": 100, "ranks": 4},
    sim.convolution_cuts: {"ranks": 4},
    sim.net_layers: {"net": "alexnet", "samples": 100},
    sim.cut_seconds: {"candidates": [{"N": 4}], "machine": classroom(4), "samples": 100,
                      "channels": [4], "sizes": [8]},
    sim.code_bytes: {"name": "qsgd", "n": 100, "bits": 4, "per": 64},
    sim.best_grid: {"m": 100, "k": 100, "n": 100, "ranks": 4},
    sim.matmul_table: {"m": 100, "k": 100, "n": 100, "ranks": 4},
    sim.collective: {"algorithm": "ring", "ranks": 4, "nbytes": 120, "machine": classroom(4)},
    sim.simulate: {"schedule": "1f1b", "ranks": 4, "microbatches": 100},
    sim.mlp_layers: {"widths": [8, 4, 2], "batch": 100, "flops": 1e9},
    sim.data_parallel: {"layers": [LAYER], "machine": classroom(4), "bucket_bytes": 120},
    sim.strategy: {
        "name": "local_sgd", "layers": [LAYER], "batches": 12, "machine": classroom(4), "every": 3,
    },
    sim.TransformerShape: {**SIZES, "heads": 2, "vocabulary": 100},
    sim.mesh_step: {"axes": {"dp": 1, "pp": 2, "tp": 2}, "machine": classroom(4), **SIZES,
                    "vocabulary": 100, "batch": 100, "microbatches": 4},
    sim.plans: {"shape": sim.TransformerShape(2, 8, 2, 100, 8), "machine": classroom(4),
                "devices": 4, "batch": 100, "itemsize": 2},
}  # fmt: skip


@pytest.mark.parametrize("form", {**FORMS, **NUMBERED}, ids=lambda form: form.__qualname__)
def test_a_number_of_numpy_s_is_the_number(form):
    call = {**FORMS, **NUMBERED}[form]
    given = {name: of_numpy(value) for name, value in call.items()}
    if "axes" in call:
        given["axes"] = {name: np.int8(length) for name, length in call["axes"].items()}
    found, expected = form(**given), form(**call)
    assert repr(found) == repr(expected) and type(found) is type(expected)
    if isinstance(found, Trace):
        assert metrics.makespan(found) == metrics.makespan(expected)


def test_every_function_of_numbers_is_among_these():
    public = {getattr(sim, name) for name in sim.__all__ if callable(getattr(sim, name))} | {
        one
        for one in vars(federated).values()
        if getattr(one, "__module__", "") == federated.__name__
    }
    wrapped = {one for one in public if hasattr(one, "__wrapped__")}
    assert wrapped <= {*FORMS, *NUMBERED}
    assert {one for one in public if isfunction(one)} - wrapped <= {
        sim.mesh_groups, sim.why_none_fits, federated._check_seconds, federated._mean_of_last,
        sim.best_single, sim.cheapest_path, sim.cut_name, sim.layer_cost, sim.switch_cost,
        sim.net_costs, sim.convolution_share, sim.bounds, sim.play, sim.search, sim.seconds_of,
        sim.upward_ranks,
    }  # fmt: skip


def test_rows_of_unequal_lengths_are_no_array():
    with pytest.raises(
        ValueError, match=r"^nbytes=\[\[1, 2\], \[3\]\] has rows of unequal lengths"
    ):
        sim.collective_seconds("ring", 4, [[1, 2], [3]], 1e-5, 1e-9)


def test_arrays_are_broadcast():
    ranks, sizes = np.array([2, 4, 8])[:, None], np.logspace(3, 6, 4)
    seconds = sim.collective_seconds("ring", ranks, sizes, 1e-5, 1e-9)
    assert seconds.shape == (3, 4)
    assert seconds[2, 1] == sim.collective_seconds("ring", 8, 1e4, 1e-5, 1e-9)
    racks = Topology.racks(2, 2, Link(1e-6, 1e10), Link(1e-5, 1e9))
    assert sim.collective_seconds("hierarchical", 4, sizes, racks).shape == (4,)


@pytest.mark.parametrize("form", {**FORMS, **OTHERS}, ids=lambda form: form.__qualname__)
def test_what_is_no_count_or_amount_is_refused_in_a_sentence_with_its_name(form):
    call = {**FORMS, **OTHERS}[form]
    for name in numbers(call):
        for value in (-1, -0.5, math.nan, "four", np.array([call[name], -1])):
            if isinstance(value, np.ndarray) and form in OTHERS:
                continue
            bad = "-1" if isinstance(value, np.ndarray) else repr(value)
            with pytest.raises(ValueError) as error:
                form(**call | {name: value})
            said = str(error.value)
            assert f"{name}={bad}" in said and said.endswith(".") and "\n" not in said, (name, said)


def test_what_a_formula_needs_is_not_none():
    with pytest.raises(ValueError, match=r"^beta=None has to be a value\.$"):
        sim.collective_seconds("ring", 4, 64, 1e-5, None)


def test_a_schedule_that_there_is_not_has_no_bubble():
    for formula in (metrics.bubble_formula, metrics.bubble_ratio_formula):
        with pytest.raises(ValueError, match="schedule='1f2b' is not known: use one of naive, gpi"):
            formula("1f2b", 4, 8)
        assert math.isnan(formula("dualpipev", 4, 8))  # it has no closed form


def test_a_bandwidth_in_place_of_seconds_per_byte_is_refused_and_seconds_in_place_of_a_bandwidth():
    hint = "has to be seconds per byte, at most 1000: for a bandwidth of 1e.09 bytes/s give 1e-09"
    calls = [
        lambda: sim.collective_seconds("ring", 4, 1e6, 1e-5, 1e9),
        lambda: sim.collective_seconds("ring", 4, np.array([1e6]), 1e-5, 1e-9, np.array([1e9])),
        lambda: sim.data_parallel_seconds(4, 1.0, 1e6, 1e-5, 1e9),
        lambda: sim.scaling_curves(1.0, 1e6, 1e-5, 1e9),
        lambda: Device("a GPU", 1e12, 1e9, 1e9, gamma=1e9),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=hint):
            call()
    with pytest.raises(ValueError, match="has to be bytes per second, at least .*give 1e.09"):
        Link(1e-5, 1e-9)

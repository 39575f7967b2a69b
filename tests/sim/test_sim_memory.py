"""Bytes of ZeRO, layers of recomputation, workspaces of convolutions, streamed layers."""

from __future__ import annotations

from math import isqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlviz.machine.hardware import DEVICES, LINKS
from dlviz.sim import (
    best_cut,
    best_segments,
    deepspeed_bytes,
    largest_model,
    recompute_peak,
    stream_seconds,
    tokens_to_hide,
    workspace_bytes,
    zero_bytes,
    zero_traffic,
)

MIXED = 2, 2, 12
STAGES = [0, 1, 2, 3]


def test_the_paper_s_table_of_7_5_billion_parameters_on_64_ranks():
    found = [zero_bytes(7.5e9, 64, stage, *MIXED) / 1e9 for stage in STAGES]
    assert [round(each, 1) for each in found] == [120, 31.4, 16.6, 1.9]


def test_the_paper_s_largest_models_on_64_devices_of_32_gb():
    found = [largest_model(32e9, 64, stage, *MIXED) / 1e9 for stage in STAGES]
    assert [round(each, 2) for each in found] == [2, 7.64, 14.42, 128]


def test_bytes_a_parameter_on_four_ranks_in_both_precisions():
    assert zero_bytes(1, 4, STAGES).tolist() == [16, 10, 7, 4]
    assert zero_bytes(1, 4, STAGES, *MIXED).tolist() == [16, 7, 5.5, 4]
    assert zero_bytes(10**9, 1, STAGES).tolist() == [16e9] * 4


@given(
    st.integers(1, 10**13), st.integers(1, 4096), st.sampled_from(STAGES),
    st.tuples(*[st.sampled_from([0.5, 1, 2, 4, 12])] * 3),
)  # fmt: skip
def test_the_largest_model_fits_and_one_parameter_more_does_not(memory, ranks, stage, each):
    model = largest_model(memory, ranks, stage, *each)
    slack = 1 + 1e-12  # the bytes are rounded to a float
    assert zero_bytes(model, ranks, stage, *each) <= memory * slack
    assert zero_bytes(model + 1, ranks, stage, *each) * slack > memory


def test_deepspeed_s_documented_example_and_its_gap_to_the_paper():
    """docs/code-docs/source/memory.rst: 15.93 and 6.09 GB (which are GiB) on 8 GPUs."""
    psi, layer = 2851e6, 32e6
    second, third = deepspeed_bytes(psi, 8, 2), deepspeed_bytes(psi, 8, 3, layer)
    assert (round(second / 2**30, 2), round(third / 2**30, 2)) == (15.93, 6.09)
    assert second - zero_bytes(psi, 8, 2, *MIXED) == 2 * psi + 2 * psi / 8
    assert third - zero_bytes(psi, 8, 3, *MIXED) == 2 * psi / 8 + 4 * layer


def test_traffic_of_each_stage_with_and_without_microbatches():
    assert [zero_traffic(stage) for stage in STAGES] == [2, 2, 2, 3]
    assert [zero_traffic(stage, 4) for stage in STAGES] == [2, 2, 5, 12]
    assert zero_traffic(1, 4, naive=True) == zero_traffic(1, naive=True) == 3
    # gathered once a microbatch, not twice
    assert [zero_traffic(3, m, reshard=False) for m in (1, 4)] == [2, 8]


@pytest.mark.parametrize("layers", [*range(1, 40), 97, 1000])
def test_the_best_segments_are_the_fewest_that_hold_least(layers):
    peaks = {k: recompute_peak(layers, k) for k in range(1, layers + 1)}
    best = best_segments(layers)
    assert peaks[best] == min(peaks.values())
    assert all(peaks[k] > peaks[best] for k in range(1, best))
    assert peaks[best] >= 2 * isqrt(layers)  # of k + n/k


def test_recomputation_of_sixteen_layers():
    assert (best_segments(16), recompute_peak(16, 4)) == (4, 8)
    assert (best_segments(12), recompute_peak(12, 3), recompute_peak(12, 4)) == (3, 7, 7)
    assert recompute_peak(16, [1, 16]).tolist() == [17, 17]


def test_im2col_holds_a_column_for_each_output_and_direct_holds_nothing():
    assert workspace_bytes("im2col", 8, 3, 16, 5, 28, 30) == 8 * 3 * 25 * 24 * 26 * 4
    assert workspace_bytes("im2col", 8, 3, 16, 5, 28, 28, 2, 2) == 8 * 3 * 25 * 14 * 14 * 4
    assert workspace_bytes("direct", 8, 3, 16, 5, 28, 28, 2, 2) == 0


SIZES = st.integers(1, 4)
COST = st.tuples(st.integers(0, 4), st.integers(0, 8))
COSTS = st.dictionaries(st.tuples(st.sampled_from("ab"), SIZES), COST, min_size=1, max_size=6)


def all_cuts(costs, batch):
    """Every list of pieces that adds up to the batch."""
    if batch == 0:
        return [[]]
    firsts = [piece for piece in costs if piece[1] <= batch]
    return [[piece, *rest] for piece in firsts for rest in all_cuts(costs, batch - piece[1])]


@given(COSTS, st.integers(1, 8), st.integers(0, 8))
def test_the_best_cut_is_that_of_trying_all(costs, batch, limit):
    cuts = all_cuts(costs, batch)
    needs = [max(costs[piece][1] for piece in cut) for cut in cuts]
    fitting = [cut for cut, most in zip(cuts, needs, strict=True) if most <= limit]
    if not cuts:
        with pytest.raises(ValueError, match=f"batch={batch} is no sum of the sizes"):
            best_cut(costs, batch, limit)
    elif not fitting:
        with pytest.raises(ValueError, match=f": {min(needs) - limit} bytes are missing"):
            best_cut(costs, batch, limit)
    else:
        seconds, cut = best_cut(costs, batch, limit)
        each = [(sum(costs[piece][0] for piece in cut), len(cut)) for cut in fitting]
        assert (seconds, len(cut)) == min(each)
        assert sorted(cut) in map(sorted, fitting) and seconds == sum(costs[p][0] for p in cut)


def test_streamed_layers_wait_for_their_copies_unless_these_came_before():
    for copy, without, hidden in ((4, 72, 44), (7, 96, 61)):
        assert [stream_seconds([5] * 8, [copy] * 8, n) for n in (0, 1)] == [without, hidden]
    uneven = [1, 9, 1, 1], [2, 2, 8, 2]
    assert [stream_seconds(*uneven, n) for n in range(4)] == [26, 16, 15, 15]
    assert stream_seconds([], [], 1) == 0


@given(st.lists(st.tuples(*[st.integers(0, 9)] * 2), min_size=1, max_size=9), st.integers(0, 9))
def test_streaming_is_a_longest_path(layers, prefetch):
    """Copies and layers as tasks, each begun as soon as all it waits for has ended."""
    compute, copy = zip(*layers, strict=True)
    end: dict[tuple[str, int], int] = {}
    for i in range(len(layers)):
        before = [end.get(("copy", i - 1), 0), end.get(("compute", i - prefetch - 1), 0)]
        end["copy", i] = max(before) + copy[i]
        end["compute", i] = max(end["copy", i], end.get(("compute", i - 1), 0)) + compute[i]
    found = stream_seconds(np.array(compute), np.array(copy), prefetch)
    assert found == end["compute", len(layers) - 1]
    assert max(sum(compute), sum(copy)) <= found <= sum(compute) + sum(copy)


def test_the_tokens_that_hide_streaming_on_known_machines():
    for device, link, tokens in (
        ("A100 80GB SXM", "PCIe 4.0 x16", 9902),
        ("H100 SXM", "PCIe 5.0 x16", 15701),
    ):
        flops, bandwidth = DEVICES[device].device.flops, LINKS[link].link.bandwidth
        assert round(tokens_to_hide(flops, bandwidth)) == tokens
        computed = 2 * tokens / flops  # seconds for each weight, and to bring its two bytes
        assert computed == pytest.approx(2 / bandwidth, rel=1e-4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: zero_bytes(8, 2, 4), "stage=4 is not a stage of ZeRO: use 0"),
        (lambda: zero_bytes(8, 2, True), "stage=True is not a stage of ZeRO"),
        (lambda: zero_bytes(-1, 2, 1), "parameters=-1 has to be a finite number, 0 or more"),
        (lambda: largest_model(8, 2, 1, 0, 0, 0), "any model fits"),
        (lambda: deepspeed_bytes(8, 2, 1), "stage=1 has no estimator in DeepSpeed: use 2 or 3"),
        (lambda: zero_traffic(2, naive=True), "naive=True is a form of stage 1, not of 2"),
        (lambda: zero_traffic(2, reshard=False), "reshard=False is a form of stage 3: at 2"),
        (lambda: recompute_peak(4, 5), "segments=5 is more than the 4 layers"),
        (lambda: workspace_bytes("gemm", 1, 1, 1, 1, 1, 1), "method='gemm' is not known: use"),
        (lambda: workspace_bytes("fft", 1, 1, 1, 5, 2, 2, 1, 1), "kernel=5 is above .* 4 x 4"),
        (lambda: best_cut({("a", 0): (1, 1)}, 1, 1), "costs of 'a': size=0 has to be"),
        (lambda: best_cut({("a", 1): (-1, 1)}, 1, 1), "costs of 'a', 1: seconds=-1 has to be"),
        (lambda: best_cut({}, 1, 1), "batch=1 is no sum of the sizes"),
        (lambda: stream_seconds([1], [1, 2], 0), "compute has 1 layers and copy 2"),
        (lambda: stream_seconds([1], [float("inf")], 0), r"copy=\[inf\] has to be a finite"),
        (lambda: stream_seconds([1], [1], -1), "prefetch=-1 has to be a whole number, 0 or more"),
        (lambda: tokens_to_hide(1e12, 0), "bandwidth=0 has to be a number, above 0 and finite"),
    ],
)
def test_what_cannot_be_is_refused_in_words(call, words):
    with pytest.raises(ValueError, match=words):
        call()

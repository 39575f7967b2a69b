"""A Transformer's size in closed form, against the figures of published models."""

from __future__ import annotations

import pytest

from dlviz.sim import (
    activation_bytes,
    saved_activations,
    transformer_flops,
    transformer_parameters,
)


# Narayanan et al., SC 2021, table 1: layers, hidden, 10^9 parameters; V = 51,200, s = 2048.
@pytest.mark.parametrize(
    ("layers", "hidden", "published"),
    [
        (24, 2304, 1.7),
        (30, 3072, 3.6),
        (36, 4096, 7.5),
        (40, 6144, 18.4),
        (48, 8192, 39.1),
        (60, 10240, 76.1),
        (80, 12288, 145.6),
        (96, 16384, 310.1),
        (105, 20480, 529.6),
        (128, 25600, 1008.0),
    ],
)
def test_published_models_have_their_published_parameters(layers, hidden, published):
    found = transformer_parameters(layers, hidden, 51200, 2048) / 1e9
    assert found == pytest.approx(published, abs=0.0501)  # its last digit


# Korthikanti et al., MLSys 2023, tables 3 and 5: layers, hidden, batch, GPUs, seconds a step, and
# the share of 312 TFLOP/s that the model's FLOPs are.
@pytest.mark.parametrize(
    ("layers", "hidden", "batch", "gpus", "seconds", "utilization"),
    [
        (48, 6144, 4, 8, 1.10, 0.415),
        (96, 12288, 64, 64, 13.75, 0.514),
        (105, 20480, 280, 280, 37.83, 0.560),
        (128, 25600, 512, 512, 71.49, 0.563),
    ],
)
def test_published_steps_have_their_published_utilization(
    layers, hidden, batch, gpus, seconds, utilization
):
    flops = transformer_flops(layers, hidden, 51200, 2048, batch)
    assert flops / (seconds * gpus * 312e12) == pytest.approx(utilization, rel=0.005)


def test_recomputation_explains_the_published_34_days_of_gpt_3():
    """Narayanan et al., section 5.1: 300 B tokens, batches of 1536, on 1024 GPUs at 140 TFLOP/s,
    by 8TP/X, which leaves the attention's products out: 2 % of the FLOPs."""
    steps = 300e9 / (1536 * 2048)
    flops = transformer_flops(96, 12288, 51200, 2048, 1536, recompute=True)
    assert steps * flops / (1024 * 140e12) / 86400 == pytest.approx(34, rel=0.03)


@pytest.mark.parametrize("t", [1, 2, 4])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_recomputation_saves_the_published_formulas(t, sequence_parallel):
    """Korthikanti et al., equations 2, 4 and 6 and table 2."""
    layers, h, a, s, b = 3, 64, 4, 32, 2
    sbh = s * b * h
    sizes = (layers, h, a, s, b, t, sequence_parallel)
    whole = sbh * (34 / t if sequence_parallel else 10 + 24 / t)
    square = sbh * 5 * a * s / (h * t)
    assert activation_bytes(*sizes) == pytest.approx(layers * (whole + square))
    assert activation_bytes(*sizes, "selective") == pytest.approx(layers * whole)
    full = 2 * sbh / (t if sequence_parallel else 1)
    assert activation_bytes(*sizes, "full") == pytest.approx(layers * full)


def test_selective_recomputation_saves_the_published_share():
    """Korthikanti et al., section 5: 70 % of GPT-3's activations, 65 % of MT-NLG's."""
    for shape, saved in (((96, 12288, 96), 0.70), ((105, 20480, 128), 0.65)):
        none, selective = (
            activation_bytes(*shape, 2048, 1, 8, True, word) for word in ("none", "selective")
        )
        assert 1 - selective / none == pytest.approx(saved, abs=0.005)


def test_wider_values_keep_twice_as_much_but_for_masks():
    sizes = (2, 64, 4, 32, 2)
    of_block = sum(saved_activations(32, 2, 64, 4, itemsize=4).values())
    assert activation_bytes(*sizes, itemsize=4) == 2 * of_block
    full = activation_bytes(*sizes, recompute="full", itemsize=4)
    assert full == 2 * activation_bytes(*sizes, recompute="full")

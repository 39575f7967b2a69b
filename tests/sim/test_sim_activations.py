"""sim.saved_activations: the published formulas, item by item."""

from __future__ import annotations

import itertools

import pytest

from dlviz import sim
from dlviz.sim import saved_activations

SIZES = list(itertools.product((1, 7, 64), (1, 3), (12, 64), (1, 4)))  # s, b, h, a


@pytest.mark.parametrize("t", [1, 2, 3, 8])
def test_the_items_of_a_block_add_up_to_the_published_formulas(t):
    for s, b, h, a in SIZES:
        alone = s * b * h * (34 + 5 * a * s / h)
        assert sum(saved_activations(s, b, h, a).values()) == pytest.approx(alone)
        tensor = s * b * h * (10 + 24 / t + 5 * a * s / (h * t))
        assert sum(saved_activations(s, b, h, a, t).values()) == pytest.approx(tensor)
        both = saved_activations(s, b, h, a, t, sequence_parallel=True)
        assert sum(both.values()) == pytest.approx(alone / t)


def test_four_ranks_keep_21_sbh_of_54_and_13_and_a_half_with_sequence_parallelism():
    sbh, size = 64 * 2 * 64, (64, 2, 64, 4)
    assert sum(saved_activations(*size).values()) == 54 * sbh
    assert sum(saved_activations(*size, 4).values()) == 21 * sbh
    assert sum(saved_activations(*size, 4, True).values()) == 13.5 * sbh


def test_wider_values_keep_more_and_masks_do_not():
    narrow, wide = (saved_activations(64, 2, 64, 4, itemsize=size) for size in (2, 4))
    for layer, nbytes in narrow.items():
        assert wide[layer] == nbytes * (1 if "drop" in layer else 2)


@pytest.mark.parametrize("name", ["sequence", "batch", "hidden", "heads", "ranks"])
def test_a_size_below_1_is_refused(name):
    sizes = {"sequence": 4, "batch": 4, "hidden": 4, "heads": 4, "ranks": 4, name: 0}
    with pytest.raises(ValueError, match=f"{name}=0 has to be a whole number, 1 or more"):
        saved_activations(**sizes)


def test_the_former_name_of_saved_activations_warns():
    with pytest.warns(DeprecationWarning, match="kept_activations is saved_activations now"):
        assert sim.kept_activations is saved_activations

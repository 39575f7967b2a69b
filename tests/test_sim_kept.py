"""The published count of kept activations, in the paper's own letters."""

from __future__ import annotations

import pytest

from dlviz.sim import kept_bytes


@pytest.mark.parametrize(("s", "b", "h", "a", "t"), [(64, 8, 64, 4, 4), (2048, 1, 12288, 96, 8)])
def test_a_rank_keeps_what_the_paper_counts(s, b, h, a, t):
    assert kept_bytes(s, b, h, a) == pytest.approx(s * b * h * (34 + 5 * a * s / h))
    tensor = s * b * h * (10 + 24 / t + 5 * a * s / (h * t))
    assert kept_bytes(s, b, h, a, t) == pytest.approx(tensor)
    both = s * b * h * (34 + 5 * a * s / h) / t
    assert kept_bytes(s, b, h, a, t, sequence_parallel=True) == pytest.approx(both)


def test_the_layer_of_lab_06_keeps_54_21_and_13_5_s_b_h():
    unit = 64 * 8 * 64
    found = [
        kept_bytes(64, 8, 64, 4),
        kept_bytes(64, 8, 64, 4, 4),
        kept_bytes(64, 8, 64, 4, 4, True),
    ]
    assert [each / unit for each in found] == [54, 21, 13.5]


def test_activations_of_32_bits_take_twice_the_bytes_and_masks_as_many():
    masks = 2 + 64 * 4 / 64  # two of what a block adds, and that of the softmax
    unit = 64 * 8 * 64
    for itemsize in (2, 4):
        found = kept_bytes(64, 8, 64, 4, itemsize=itemsize) / unit
        assert found == (54 - masks) * itemsize / 2 + masks


@pytest.mark.parametrize("name", ["sequence", "batch", "hidden", "heads", "ranks", "itemsize"])
def test_a_size_below_one_makes_no_layer(name):
    sizes = {"sequence": 4, "batch": 1, "hidden": 8, "heads": 2, "ranks": 2, name: 0}
    with pytest.raises(ValueError, match=f"{name}=0 makes no layer"):
        kept_bytes(**sizes)

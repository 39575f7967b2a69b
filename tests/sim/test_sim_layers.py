"""The lecture's table of what one layer costs to share."""

import pytest

from dlviz.sim import layer_bytes, layer_elements
from dlviz.sim.layers import FORMS


def test_the_table_is_the_lectures():
    assert layer_elements("data", 64, 512, 2048) == (0, 0, 2 * 2048 * 512)
    assert layer_elements("partition_output", 64, 512, 2048) == (64 * 512, 64 * 512, 0)
    assert layer_elements("reduce_output", 64, 512, 2048) == (2 * 64 * 2048, 0, 0)


@pytest.mark.parametrize(
    ("form", "wide", "narrow"),
    [
        ("data", 6_291_456, 6_291_456),
        ("partition_output", 196_608, 786_432),
        ("reduce_output", 786_432, 196_608),
    ],
)
def test_four_ranks_send_so_many_bytes_and_partition_and_reduce_change_places(form, wide, narrow):
    assert layer_bytes(form, 64, 512, 2048, 4) == wide
    assert layer_bytes(form, 64, 2048, 512, 4) == narrow


@pytest.mark.parametrize("form", FORMS)
def test_one_rank_sends_nothing_and_half_the_item_size_half_the_bytes(form):
    assert layer_bytes(form, 8, 6, 10, 1) == 0
    assert layer_bytes(form, 8, 6, 10, 3, itemsize=2) == layer_bytes(form, 8, 6, 10, 3) / 2 > 0


def test_data_parallelism_wins_from_as_many_rows_as_the_other_side_of_the_matrix_has():
    inputs, outputs = 512, 2048
    for form, rows in [("partition_output", outputs), ("reduce_output", inputs)]:
        cost = [layer_bytes(form, rows + more, inputs, outputs, 4) for more in (-1, 0, 1)]
        data = layer_bytes("data", rows, inputs, outputs, 4)
        assert cost[0] < data == cost[1] < cost[2]


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (("columns", 1, 1, 1, 1), "form='columns' is not known: use 'data', 'partition_output'"),
        (("data", 0, 1, 1, 1), "batch=0 has to be a whole number, 1 or more"),
        (("data", 1, 1, 1, 0), "ranks=0 has to be a whole number, 1 or more"),
    ],
)
def test_what_makes_no_layer_is_refused_in_words(sizes, words):
    with pytest.raises(ValueError, match=words):
        layer_bytes(*sizes)

"""The figures that the text of lab 06 states: by formulas; what runs measured is in the committed
outputs (test_labs_stored.py)."""

from __future__ import annotations

import math
from pathlib import Path

import nbformat
import pytest
import torch

from dlviz.sim import (
    best_grid,
    collective_seconds,
    layer_bytes,
    layer_elements,
    matmul_lower_bound,
    matmul_table,
    matmul_words,
    saved_activations,
)
from dlviz.sim.layers import FORMS

LAB = Path(__file__).parents[2] / "labs" / "06_tensor_parallel.ipynb"
TEXT = "\n".join(cell.source for cell in nbformat.read(LAB, as_version=4).cells)
SHAPES = {  # of part 7: m, k, n, ranks
    (64, 512, 2048, 4): 24_576,
    (64, 4096, 64, 4): 3_072,
    (512, 512, 512, 8): 98_304,
}


def sent(form: str, rows: int = 64, inputs: int = 512, outputs: int = 2048) -> float:
    return layer_bytes(form, rows, inputs, outputs, 4)


def test_a_forward_of_a_layer_takes_40_ms_on_the_machine_of_part_1():
    flops = 4 * 6 * 32 * 128 * 128 / 0.48
    assert 2 * 32 * 128 * 128 / flops == pytest.approx(0.040)
    assert "flops=4 * 6 * 32 * 128 * 128 / 0.48" in TEXT and "forward takes 40 ms" in TEXT


def test_the_bytes_that_part_2_states_and_asks_for():
    assert sent("data") == 2 * 3 / 4 * 4 * 1_048_576 == 6_291_456 and "= 6,291,456 bytes" in TEXT
    assert (sent("partition_output"), sent("reduce_output")) == (196_608, 786_432)
    swapped = [sent(form, 64, 2048, 512) for form in ("reduce_output", "partition_output")]
    assert swapped == [196_608, 786_432]


def test_data_parallelism_sends_as_few_bytes_from_c_out_and_from_c_in_rows_on():
    for form, rows in (("partition_output", 2048), ("reduce_output", 512)):
        assert sent("data", rows) == sent(form, rows)
        assert sent("data", rows - 1) > sent(form, rows - 1)


def test_the_questions_at_the_end_of_the_lab():
    elements = {form: sum(layer_elements(form, 128, 1024, 256)) for form in FORMS}
    assert min(elements, key=lambda form: elements[form]) == "reduce_output"
    assert all(f"{count:,}" in TEXT.partition("Check yourself")[2] for count in elements.values())
    assert 10 + 44 / 2 == 32 and 54 / 2 == 27
    assert 100 / 2 + 20 == 70 and 100 / 4 + 60 == 85


def test_a_layer_of_part_5_saves_54_21_and_13_5():
    found = [
        sum(saved_activations(64, 8, 64, 4, *way).values()) / (64 * 8 * 64)
        for way in ((1,), (4,), (4, True))
    ]
    assert found == [54, 21, 13.5] and "this is 54 · s·b·h" in TEXT


def test_the_slow_link_of_part_6_is_priced_as_the_text_has_it():
    assert 4 * 64 * 128 == 32_768 and "32,768 bytes" in TEXT
    for ranks in (2, 4, 8):
        seconds = 2 * (ranks - 1) * (4e-3 + 5.24288e-3 / ranks)
        assert collective_seconds("ring", ranks, 32_768, 4e-3, 1.6e-7) == pytest.approx(seconds)
    assert "(4 ms + 5.2 ms/n)" in TEXT


@pytest.mark.parametrize("shape", SHAPES)
def test_the_best_grid_of_each_product_of_part_7_reaches_the_bound(shape):
    *dims, ranks = shape
    _, words = best_grid(*dims, ranks)
    assert words == matmul_lower_bound(*dims, ranks) == SHAPES[shape]
    m, k, n = dims
    memory = (m * k + k * n + m * n) / ranks
    assert m * k * n / (2 * math.sqrt(2) * ranks * math.sqrt(memory)) - memory < 0


def test_the_2d_grids_of_part_7():
    assert matmul_words(512, 512, 512, (2, 1, 4)) == 131_072
    rows = {str(row["form"]): row for row in matmul_table(64, 4096, 64, 4)}
    assert rows["2D"]["words"] == 131_072 and round(131_072 / 3_072) == 43
    assert "moves 43 times as many words" in TEXT


def test_the_gelu_of_a_sum_is_not_the_sum_of_the_gelus():
    u, v = torch.tensor([1.0, -2.0]), torch.tensor([-3.0, 1.0])
    gelu = torch.nn.functional.gelu
    assert "u, v = torch.tensor([1.0, -2.0]), torch.tensor([-3.0, 1.0])" in TEXT
    assert (gelu(u + v) - gelu(u) - gelu(v)).abs().min() > 0.5

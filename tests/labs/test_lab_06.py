"""The figures that the text of lab 06 and its page state: by formulas, and by counts of what the
package runs; what runs measured is in the committed outputs (test_labs_stored.py)."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
import torch

import dlviz
from dlviz.models import LSTM, saved_tensors
from dlviz.parallel.tensor import layer_steps
from dlviz.parallel.update_rules import make as make_rule
from dlviz.sim import (
    best_grid,
    collective_seconds,
    layer_bytes,
    layer_elements,
    matmul_lower_bound,
    matmul_words,
    saved_activations,
)
from dlviz.sim.layers import FORMS

LABS = Path(__file__).parents[2] / "labs"
TEXT = "\n".join(
    cell.source for cell in nbformat.read(LABS / "06_tensor_parallel.ipynb", as_version=4).cells
)
PAGE = (LABS.parent / "docs" / "teaching" / "06_tensor_parallel.md").read_text()
LAYER, COPY = 0.04, 0.02  # s of part 1: a forward of a layer, a message
PER_WEIGHT = 4 * (2 + make_rule("adam", 0.1).state_tensors)  # bytes


def sent(form: str, rows: int = 64, inputs: int = 512, outputs: int = 2048) -> float:
    return layer_bytes(form, rows, inputs, outputs, 4)


def step(layers: int, first: int, messages: int = 0) -> float:
    """Seconds of a rank's step: forward and backward of its layers, `first` of which need no
    gradient of their input."""
    return (3 * layers - first) * LAYER + messages * COPY


def slow_link(ranks: int) -> float:
    return 0.4 / ranks + 2 * collective_seconds("ring", ranks, 32_768, 4e-3, 1.6e-7)


FORMULAS = {  # a question's answer, by its id
    "sequence-with-messages": step(4, 1) / step(4, 1, messages=2),
    "partition-output-bytes": sent("partition_output"),
    "data-parallel-rows": next(
        rows for rows in range(1, 10_000) if sent("data", rows) <= sent("partition_output", rows)
    ),
    "adam-bytes": PER_WEIGHT * 512 * 2048 / 4,
    "slow-link-speed-up": slow_link(1) / slow_link(8),
    "summa-words": matmul_words(512, 512, 512, (2, 1, 2)),
}


def test_a_step_of_part_1_takes_440_ms_on_one_rank_and_two_messages_more_on_two():
    assert 2 * 32 * 128 * 128 / (2 * 32 * 128 * 128 / LAYER) == pytest.approx(LAYER)
    assert "flops=2 * 32 * 128 * 128 / 0.04" in TEXT and "forward takes 40 ms" in TEXT
    assert "Link(0, 32 * 128 * 4 / 0.02)" in TEXT and "takes 20 ms" in TEXT
    assert step(4, 1) == pytest.approx(0.44) and "440 ms a step on one rank" in TEXT
    assert f"**{FORMULAS['sequence-with-messages']:.2f}** = 440/480" in PAGE
    branches = step(4, 2) / step(2, 1, messages=2)
    assert f"**{branches:.2f}** = 400/240" in PAGE


def test_an_lstm_saves_what_the_page_says():
    net = LSTM(50, width=64)
    saved = {n: saved_tensors(net, torch.ones(16, n, dtype=int)).nbytes.sum() for n in (20, 40)}
    weights = sum(p.nbytes for p in net.parameters())
    for count in (weights, *saved.values()):
        assert f"{count:,} bytes" in PAGE or f"and {count:,} for 40" in PAGE
    assert f"{saved[40] / saved[20]:.2f} times as many" in PAGE and "nearly twice" in TEXT


def test_the_bytes_that_part_2_states_and_asks_for():
    assert sent("data") == 2 * 3 / 4 * 4 * 1_048_576 == 6_291_456 and "= 6,291,456 bytes" in TEXT
    assert (sent("partition_output"), sent("reduce_output")) == (196_608, 786_432)
    swapped = [sent(form, 64, 2048, 512) for form in ("reduce_output", "partition_output")]
    assert swapped == [196_608, 786_432]


def test_data_parallelism_sends_as_few_bytes_from_c_out_and_from_c_in_rows_on():
    for form, rows in (("partition_output", 2048), ("reduce_output", 512)):
        assert sent("data", rows) == sent(form, rows)
        assert sent("data", rows - 1) > sent(form, rows - 1)
    assert "weights=2**16" in TEXT and "2¹⁶ weights" in TEXT


def test_with_adam_a_weight_takes_16_bytes_and_a_layer_of_gpt_3_9_7_gb():
    assert PER_WEIGHT == 16 and "holds 16 bytes for each weight" in TEXT
    whole = PER_WEIGHT * 12_288 * 49_152 / 1e9
    assert f"takes {whole:.1f} GB" in TEXT and f"ranks holds {whole / 8:.1f} GB" in TEXT
    fit = [ranks * 80 / PER_WEIGHT for ranks in (1, 8)]
    assert fit == [5, 40] and "(5 and 40 billion.)" in PAGE


def test_ranks_send_and_hold_by_each_form_what_the_formulas_say():
    shapes = ((8, 12, 16), (4, 16, 8))
    cases = [(form, *shape) for shape in shapes for form in FORMS]
    run = dlviz.launch(layer_steps, 4, args=(cases,))
    for number, (form, batch, inputs, outputs) in enumerate(cases):
        own = run.trace.only(step=number)
        wanted = layer_bytes(form, batch, inputs, outputs, 4)
        assert (dlviz.metrics.bytes_sent(own) == wanted).all(), form
        weights = 4 * inputs * outputs // (1 if form == "data" else 4)
        for held in (result[number] for result in run.results):
            assert held == {"weights": weights, "gradients": weights, "Adam": 2 * weights}, form


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (("rows", 4, 4, 4), "form='rows' is not known"),
        (("data", 3, 4, 4), "batch=3 cannot be split over 2 ranks"),
        (("reduce_output", 4, 3, 4), "cannot be split over 2 ranks"),
    ],
)
def test_a_case_that_ranks_cannot_share_is_refused(case, message):
    with pytest.raises(dlviz.RankError, match=message):
        dlviz.launch(layer_steps, 2, args=([case],))


def test_the_questions_at_the_end_of_the_lab():
    elements = {form: sum(layer_elements(form, 128, 1024, 256)) for form in FORMS}
    assert min(elements, key=lambda form: elements[form]) == "reduce_output"
    assert all(f"{count:,}" in TEXT.partition("Check yourself")[2] for count in elements.values())
    assert 10 + 44 / 2 == 32 and 54 / 2 == 27
    assert 100 / 2 + 20 == 70 and 100 / 4 + 60 == 85


def test_a_layer_of_part_4_saves_54_21_and_13_5():
    found = [
        sum(saved_activations(64, 8, 64, 4, *way).values()) / (64 * 8 * 64)
        for way in ((1,), (4,), (4, True))
    ]
    assert found == [54, 21, 13.5] and "here 54·s·b·h" in TEXT


def test_the_published_figures_are_those_of_their_sources():
    """DeepBench's README, training results, Tesla P100; nv-adlr.github.io/MegatronLMV1, table 1."""
    for figure in ("8.21 TFLOP/s", "5,124 × 2,560 × 9,124", "2,560 × 2,560 × 64"):
        assert figure in TEXT and figure in PAGE
    assert "and 5.31 on" in TEXT and f"{5.31 / 8.21:.0%}".replace("%", " %") in PAGE
    assert "90.7, 86.5 and 79.6 % of linear scaling" in TEXT
    assert TEXT.count("*Published, not ours*") == 2


def test_the_slow_link_of_part_5_is_priced_as_the_text_has_it():
    assert 4 * 64 * 128 == 32_768 and "32,768 bytes" in TEXT
    for ranks in (2, 4, 8):
        seconds = 2 * (ranks - 1) * (4e-3 + 5.24288e-3 / ranks)
        assert collective_seconds("ring", ranks, 32_768, 4e-3, 1.6e-7) == pytest.approx(seconds)
    assert "(4 ms + 5.2 ms/n)" in TEXT


def test_on_the_grids_of_part_6_a_rank_receives_what_the_page_says():
    one = {matmul_words(512, 512, 512, grid) for grid in ((4, 1, 1), (1, 4, 1), (1, 1, 4))}
    assert one == {196_608} and "**196,608 words on each**" in PAGE
    assert FORMULAS["summa-words"] / 196_608 == pytest.approx(2 / 3)
    cube = matmul_words(512, 512, 512, (2, 2, 2))
    assert cube == matmul_lower_bound(512, 512, 512, 8) == best_grid(512, 512, 512, 8)[1]
    assert f"gives {cube:,.0f} words" in PAGE
    assert f"has {matmul_words(512, 512, 512, (2, 1, 4)):,.0f}" in PAGE
    assert f"finds {best_grid(8192, 512, 2048, 8)[0]}" in PAGE


def test_the_gelu_of_a_sum_is_not_the_sum_of_the_gelus():
    gelu = torch.nn.functional.gelu
    both, each = gelu(torch.tensor(1.0 - 3.0)), gelu(torch.tensor([1.0, -3.0])).sum()
    assert f"with 1 and -3, {both:.2f} against {each:.2f}" in TEXT

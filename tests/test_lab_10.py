"""The figures that the text of lab 10 states, by formulas and by counting the real module."""

from __future__ import annotations

from pathlib import Path

import nbformat

from dlviz.metrics import bubble_ratio
from dlviz.models import Transformer
from dlviz.schedules import make
from dlviz.sim import Costs, simulate, transformer_flops, transformer_parameters

LAB = Path(__file__).parents[1] / "labs" / "10_three_axes.ipynb"
TEXT = "\n".join(cell.source for cell in nbformat.read(LAB, as_version=4).cells)
NET = Transformer(4, 64, 4, 128, 64)
TENSOR = 4 * 2 * 64 * 64  # bytes of the activations of a microbatch


def on_rank(stage: int) -> int:
    """Parameters of a rank, two stages of two layers, each cut over two ranks."""
    shapes = {name: p.numel() for name, p in NET.named_parameters()}
    count = 0
    for name, number in shapes.items():
        if name.startswith("blocks."):
            if int(name.split(".")[1]) // 2 == stage:
                whole = "norm" in name or name.endswith(("output.bias", "down.bias"))
                count += number if whole else number // 2
        elif name.startswith("tokens"):
            count += number // 2  # the first stage reads it, the last one computes scores with it
        elif ("positions" in name) == (stage == 0):
            count += number
    return count


def test_the_model_has_the_parameters_that_the_text_states():
    assert sum(p.numel() for p in NET.parameters()) == 212_352 and "212,352 parameters" in TEXT


def test_the_bytes_of_a_microbatch():
    assert TENSOR == 32_768 and "32,768 bytes" in TEXT
    assert "the gradient of the embedding, 16,384 bytes" in TEXT
    assert 128 // 2 * 64 * 4 == 16_384


def test_a_rank_of_the_second_stage_has_the_bytes_that_the_lecturers_page_states():
    page = (LAB.parents[1] / "docs" / "teaching" / f"{LAB.stem}.md").read_text()
    assert f"{on_rank(1):,} parameters of 4 bytes" in page
    assert f"The first stage has {on_rank(0):,}" in page
    assert f"**{16 * on_rank(0):,} bytes** = 16 · {on_rank(0):,}" in page
    assert f"**{100 * on_rank(0) / 212_352:.1f} %**: {on_rank(0):,} of 212,352" in page
    assert f"**{2 * 4 * 4 * TENSOR:,}** = 2 layers · 4 all-reduces" in page
    assert f"**{4 * TENSOR:,}** = 4 microbatches" in page


def test_the_slow_link_carries_what_the_text_states():
    dp, tp = (on_rank(0) + on_rank(1)) / 2 * 4, 36 * TENSOR
    assert f"{dp / 1e6:.2f} MB of gradients" in TEXT and f"{tp / 1e6:.2f} MB of activations" in TEXT
    page = (LAB.parents[1] / "docs" / "teaching" / f"{LAB.stem}.md").read_text()
    assert f"(0.70 + {4 * tp / 2e6:.2f}) / (0.70 + {4 * dp / 2e6:.2f})" in page
    assert round((0.7 + 4 * tp / 2e6) / (0.7 + 4 * dp / 2e6), 1) == 2.7


def test_the_bubbles_of_the_text_and_of_its_questions():
    for stages, microbatches, ratio in ((2, 4, 0.25), (4, 4, 0.75), (4, 16, 3 / 16)):
        trace = simulate(make("1f1b", stages, microbatches), Costs())
        assert abs(bubble_ratio(trace) - ratio) < 1e-9
    assert "3/16 = 0.19" in TEXT and "is three quarters" in TEXT


def test_the_groups_of_the_first_question():
    def members(rank: int, axis: int, sizes: tuple[int, ...]) -> list[int]:
        strides = [4 * 2, 2, 1]
        own = rank // strides[axis] % sizes[axis]
        return [rank + (at - own) * strides[axis] for at in range(sizes[axis])]

    dp, pp, tp = (members(5, axis, (2, 4, 2)) for axis in range(3))
    assert (dp, pp, tp) == ([5, 13], [1, 3, 5, 7], [4, 5])
    assert "tp (4, 5), pp (1, 3, 5, 7), dp (5, 13)" in TEXT


def test_the_large_model_of_part_7():
    parameters = transformer_parameters(72, 3072, 51_200, 1024)
    assert f"{parameters / 1e9:.1f} billion parameters" in TEXT
    page = (LAB.parents[1] / "docs" / "teaching" / f"{LAB.stem}.md").read_text()
    assert f"16 · {parameters / 1e9:.3f} billion = {16 * parameters / 1e9:.1f} GB" in page
    assert round(100 * 15.1e15 / (512 * 125e12)) == 24 and "24 % of the peak" in TEXT
    step = transformer_flops(72, 3072, 51_200, 1024, 512)
    assert f"{step / 1e15:.0f} PFLOP a step of 512 texts, {step / 5 / 125e12:.0f} s on five" in page

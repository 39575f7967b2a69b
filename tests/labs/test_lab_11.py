"""The figures that lab 11 and its page state, by closed forms; the runs themselves are held by the
tests of what they call."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from stored import shown

from dlviz.grading.questions import by_lab
from dlviz.sim import (
    best_segments,
    largest_model,
    recompute_peak,
    stream_seconds,
    tokens_to_hide,
    zero_bytes,
    zero_traffic,
)
from dlviz.widgets import MemoryExplorer

LABS = Path(__file__).parents[2] / "labs"
CELLS = nbformat.read(LABS / "11_memory.ipynb", 4).cells
TEXT = "\n".join(cell.source for cell in CELLS)
PAGE = (LABS.parent / "docs" / "teaching" / "11_memory.md").read_text()
MIXED = {"values": 2, "gradients": 2, "rule": 12}


def streamed(bring: float, prefetch: int) -> float:
    return round(1e3 * stream_seconds([5e-3] * 8, [bring * 1e-3] * 8, prefetch), 6)


FORMULAS = {  # a question's answer, by its id
    "adam-between-steps": zero_bytes(1, 1, 0),
    "stage-two-bytes": zero_bytes(1, 4, 2),
    "stage-three-price": zero_traffic(3) / zero_traffic(0),
    "stage-three-accumulated": zero_traffic(3, 4),
    "small-model-peak": 1.0,
    "segments-held": recompute_peak(16, 4),
    "streamed-forward": streamed(4, 1),
    "tokens-a100": tokens_to_hide(312e12, 31.5e9),
}


def test_the_answers_are_those_of_the_formulas():
    questions = {each.id: each.answer for each in by_lab()["11"]}
    assert questions == pytest.approx(FORMULAS, rel=1e-4)


def test_the_figures_in_the_text_follow():
    assert [zero_bytes(1, 4, stage) for stage in range(4)] == [16, 10, 7, 4]
    assert [zero_bytes(1, 4, stage, **MIXED) for stage in range(4)] == [16, 7, 5.5, 4]
    assert "16, 10, 7, 4" in TEXT and "16, 7, 5.5, 4" in TEXT and "16, 7, 5.5, 4" in PAGE
    assert [zero_traffic(1, naive=True), zero_traffic(2, 4), zero_traffic(3, 4, False)] == [3, 5, 8]
    assert [streamed(4, 0), streamed(7, 0), streamed(7, 1), streamed(7, 2)] == [72, 96, 61, 61]
    assert best_segments(16) == 4 and recompute_peak(16, 2) == recompute_peak(16, 8) == 10
    assert best_segments(36) == 6 and recompute_peak(36, 6) == 12
    assert tokens_to_hide(989e12, 63e9) == pytest.approx(15_698, abs=1)
    fits = [ranks for ranks in range(1, 20) if zero_bytes(10e9, ranks, 3, **MIXED) <= 24e9]
    assert fits[0] == 7 and "**7** by hand" in PAGE and "**8** in the explorer" in PAGE
    chosen = {"parameters": 10**10, "precision": "bfloat16", "stage": 3, "memory": 24 * 10**9}
    said = [MemoryExplorer(**chosen, ranks=ranks).payload()["answer"] for ranks in (7, 8)]
    assert "too much" in said[0] and "holds 23.8 GB a rank" in said[1]
    on_top = MemoryExplorer(**chosen, ranks=8).payload()["rows"][3]["parts"][4]
    assert on_top == 3 * 2 * 10e9 / 16 and "3.75 GB: two gathered layers of 16" in PAGE
    small = [64 * 128 + 128, 128 * 128 + 128, 128 * 10 + 10]
    assert round(100 * small[1] / sum(small)) == 63 and "63 %" in TEXT and "63 %" in PAGE
    one, three = (zero_bytes(1, 8, stage, **MIXED) for stage in (1, 3))
    assert (one, three) == (5.5, 2) and zero_bytes(2e9, 1, 0, **MIXED) == 32e9
    assert largest_model(32e9, 64, 0, **MIXED) == 2e9


def test_the_stored_runs_have_what_the_text_says():
    """Bytes, and paced seconds: they do not depend on the machine."""
    assert [line.split()[-1] for line in shown("11_memory", "table.assign").splitlines()[1:]] == [
        "16.0", "10.0", "7.0", "4.0",
    ]  # fmt: skip
    rows = [
        line.split()[-2:] for line in shown("11_memory", "pd.DataFrame(sent)").splitlines()[-5:]
    ]
    assert [units for units, _ in rows] == ["3.0", "2.0", "5.0", "12.0", "8.0"]
    assert 0.5 < float(rows[4][1]) - float(rows[2][1]) < 1.5  # layers stay: "about a byte above"
    small = float(shown("11_memory", "{ratio[20_000]:.2f}").split()[-1])
    assert 0.94 < small < 0.98 and "0.95 to 0.97" in PAGE
    measured, formula = shown("11_memory", '"k + 16/k": formula').splitlines()[1:]
    assert measured.split()[1:] == formula.split()[-6:] == "17.0 17.0 10.0 8.0 10.0 17.0".split()
    four, seven = shown("11_memory", 'columns="prefetch"').splitlines()[-2:]
    assert four.split()[-3:] == ["72.0", "44.0", "44.0"] and seven.split()[-3:] == [
        "96.0", "61.0", "61.0",
    ]  # fmt: skip

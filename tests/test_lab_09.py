"""The lab on pipelines as it is committed: what its runs measured is what its text says."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

LAB = Path(__file__).parents[1] / "labs" / "09_pipelines.ipynb"
ANSWERS = {  # by formula
    "speed-up of 8 devices, one microbatch at a time": 1,
    "speed-up of 8 devices, GPipe with 8 microbatches": 8 * 8 / (8 + 7),
    "microbatches for a bubble ratio of 0.1, 8 devices": 70,
    "microbatches held by rank 0, 1F1B, 4 ranks, 16 microbatches": 4,
    "messages, interleaved, 4 ranks, 2 chunks, 8 microbatches": 2 * 7 * 8,
    "updates between forward and backward, rank 0 of 4, PipeDream": 3,
    "bubble ratio of ZB-H1, 4 ranks, 8 microbatches": 1 / 8,
    "inference: 16 microbatches through 4 stages": 190,
}


def shown(words: str) -> str:
    """What the cell whose code holds `words` printed or gave."""
    cells = nbformat.read(LAB, as_version=4).cells
    (cell,) = [c for c in cells if c.cell_type == "code" and words in c.source]
    return "".join(o.get("text", "") or o["data"]["text/plain"] for o in cell.outputs)


def table(words: str) -> dict[str, list[float]]:
    """The rows of the DataFrame that a cell gave, by what stands before the first number."""
    rows = [line.split() for line in shown(words).splitlines()]
    return {
        row[0]: [float(number) for number in row[1:]]
        for row in rows
        if len(row) > 2 and all(re.fullmatch(r"-?[\d.]+|NaN", number) for number in row[1:])
    }


def test_the_committed_runs_measured_what_the_formulas_say():
    told = shown("print(calibration())")
    measured = dict(re.findall(r"^(.*): predicted .* measured ([\d.]+)", told, re.M))
    assert set(measured) == set(ANSWERS)
    for question, answer in ANSWERS.items():
        assert float(measured[question]) == pytest.approx(answer, rel=0.06), question


def test_the_committed_bubbles_of_gpipe_lie_within_2_percent_of_the_formula():
    rows = table('table["gap (%)"]')
    assert [*rows] == ["1", "2", "4", "8", "16", "32", "64"]
    for microbatches, (formula, simulated, measured, gap) in rows.items():
        assert formula == simulated == round(7 / int(microbatches), 3)
        assert abs(gap) < 2 if microbatches in ("8", "16", "32") else measured != measured


def test_the_committed_table_of_six_schedules_is_what_the_text_draws_from_it():
    rows = table('"held": peak_in_flight')
    for name, (formula, simulated, measured, _, _, _) in rows.items():
        assert formula == simulated == pytest.approx(measured, abs=0.01), name
    formulas, *_, gaps, held, messages = (
        dict(zip(rows, column, strict=True)) for column in zip(*rows.values(), strict=True)
    )
    assert formulas["zb_h1"] == formulas["1f1b"] / 3 and held["zb_h1"] == held["1f1b"] == 4
    assert gaps["zb_h2"] == gaps["zbv"] == 0 and gaps["zb_h1"] > 0
    assert held["zb_h2"] > held["zb_h1"] and messages["zbv"] == 2 * messages["zb_h2"]

"""How far somebody is, from what the notebooks of a folder keep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dlviz.grading
from dlviz import cli
from dlviz.grading import predict
from dlviz.grading.predictions import hand_in, prediction_file
from dlviz.grading.predictions.predict import _made
from dlviz.grading.questions import by_lab

LABS = Path(__file__).parents[2] / "labs"
RING, SHARE = [each.asks for each in by_lab()["00"]][:2]


@pytest.fixture
def labs(tmp_path, monkeypatch) -> Path:
    """A folder of labs in which somebody has worked: lab 00, and one assignment's first check."""
    own = tmp_path / "assignments" / "ring_all_reduce"
    own.mkdir(parents=True)
    source = LABS / "assignments" / "ring_all_reduce" / "ring_all_reduce.ipynb"
    (own / "ring_all_reduce.ipynb").write_bytes(source.read_bytes())
    (tmp_path / "00_start_here.ipynb").write_text("{}")
    monkeypatch.setattr(prediction_file, "file", tmp_path / "predictions.json")
    predict(RING, 12, "messages").compare(24)
    predict(RING, 24, "messages")
    predict(SHARE, ..., "%").compare(8)  # is withheld
    monkeypatch.setattr(prediction_file, "file", own / "predictions.json")
    hand_in.record_check("sums", 1.5, 3)
    hand_in.record_check("sums", 2.5, 3)
    _made.clear()
    hand_in._checks.clear()
    return tmp_path


def test_each_lab_and_assignment_has_a_row_of_what_was_done(labs):
    found = dlviz.grading.progress(labs)
    assert len(found.table) == len(by_lab()) > 16
    row = found.table.loc["00 start here"]
    assert (row["questions"], row["predicted"], row["results seen"]) == (5, 1, 1)
    assert (row["typically off by"], row["second attempts"]) == ("2.00", 1)
    assert found.table.loc["Lab 02", "predicted"] == 0
    assert found.table.loc["Assignment: ring all-reduce", "points"] == "2.5 of 18"
    asked = sum(map(len, by_lab().values()))
    assert found.sums == f"1 of {asked} results seen, 2.5 points." and not found.unread
    assert callable(dlviz.grading.progress)  # once more: no module took its name


def test_the_command_prints_it_and_names_what_cannot_be_read(labs, capsys):
    (labs / "assignments" / "predictions.json").write_text("{")
    assert cli.main(["progress", str(labs)]) == 0
    printed = capsys.readouterr().out
    assert "2.5 of 18" in printed and "predictions.json was left out" in printed
    assert cli.main(["progress", str(labs / "none")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_what_checks_said_outlasts_the_kernel_beside_predictions(labs):
    held = json.loads((labs / "assignments/ring_all_reduce/predictions.json").read_text())
    assert held["checks"]["sums"]["points"] == 2.5 and held["predictions"] == {}

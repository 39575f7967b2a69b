"""analysis.recorded: a file of trainings, which are made again by column."""

from __future__ import annotations

import pytest

from dlviz.analysis.recorded import Recorded, last_third, record


def test_rows_that_are_made_again_take_the_place_of_those_alike_in_the_column(tmp_path):
    file = tmp_path / "sweep.json"
    record(file, [{"method": "ring, é", "lr": lr} for lr in (0.1, 0.2)], "method")
    record(file, [{"method": "tree", "lr": 0.1}], "method")
    record(file, [{"method": "ring, é", "lr": 0.3}], "method")
    found = Recorded.load(file)
    assert found.rows == [{"method": "tree", "lr": 0.1}, {"method": "ring, é", "lr": 0.3}]
    assert found.made["machine"].split()[-2] == "torch" and len(found.made["date"]) == 10
    assert len(file.read_text("utf-8").splitlines()) == 5  # a line for each row


@pytest.mark.parametrize(
    ("values", "mean"), [([7.0], 7), ([1.0, 3.0], 3), ([9.0, 9, 9, 9, 2, 4, 6], 5)]
)
def test_the_last_third_is_of_one_value_at_least(values, mean):
    assert last_third(values) == mean

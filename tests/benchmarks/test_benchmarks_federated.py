"""`python -m benchmarks federated` where Flower is not installed."""

from __future__ import annotations

import math

from benchmarks import federated
from benchmarks.table import lines, take_turns, verdict


def test_without_flower_its_row_says_what_to_install_and_the_others_are_measured(monkeypatch):
    monkeypatch.setattr(federated, "find_spec", lambda name: None)
    monkeypatch.setattr(federated, "take_turns", lambda runs: take_turns(runs, 1))
    for name, less in {"ROUNDS": 2, "MANY": 20, "EXAMPLES": 60, "LENGTHS": (8,)}.items():
        monkeypatch.setattr(federated, name, less)
    found = federated.rows()
    first, *others = found
    assert "Flower is not installed: pip install" in verdict(first)
    assert math.isnan(first.peer) and first.target is None
    assert [row.what.split(" of ")[0] for row in others] == ["round", "secure sum", "epsilon"]
    assert "no peer: Flower's SecAgg is a part of its training rounds" in verdict(others[1])
    assert all(row.ours > 0 for row in found) and len([*lines(found)]) == 4
    assert not any("nan" in each for each in lines(found))

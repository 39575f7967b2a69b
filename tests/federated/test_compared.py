"""Methods compared: each at its best rate, over seeds, from the same weights."""

from __future__ import annotations

import math

import pytest
import torch

import dlviz
from dlviz.federated import (
    last_third,
    partition,
    received,
    robust,
    rounds_to,
    train,
    train_each,
    tuned,
)
from dlviz.federated.compared import Sweep, median_and_range, record, scores, summary
from dlviz.models import MLP, accuracy

IMAGES, LABELS = dlviz.datasets.digits("train")
FOUR = partition.dealt(IMAGES, LABELS, partition.identical(LABELS, 4))
NET = MLP((64, 8, 10))
ONCE = {"rounds": 2, "batch": 100}


def test_the_first_round_at_the_goal_counts_from_1_and_is_infinite_where_there_is_none():
    assert rounds_to(0.9, [0.1, 0.95, 0.5]) == 2 and rounds_to(0.9, [0.9]) == 1
    assert rounds_to(0.9, [0.89]) == rounds_to(0.9, []) == math.inf


def test_the_last_third_is_the_mean_of_its_rounds_and_of_one_at_least():
    assert last_third([0, 0, 0, 0, 3, 5]) == 4 and last_third([7, 1]) == 1
    assert last_third([0] * 4 + [3]) == 3


def test_a_method_is_tuned_by_the_rounds_of_its_median_seed_and_then_by_its_end():
    slow, quick = [0.5, 0.5, 0.9], [0.5, 0.9, 0.9]
    found = tuned({0.1: [slow, slow, quick], 0.2: [quick, slow, quick]}, 0.9)
    assert found.rate == 0.2 and found.rounds == [2, 3, 2] and found.ends == [0.9] * 3
    assert tuned({0.1: [[0.9, 0.5, 0.5]], 0.2: [[0.5, 0.5, 0.95]]}, 0.9).rate == 0.1
    never = tuned({0.1: [[0.3]], 0.2: [[0.4]], 0.4: [[0.2]]}, 0.9)
    assert never.rate == 0.2 and never.rounds == [math.inf]
    with pytest.raises(ValueError, match="a rate without a run"):
        tuned({0.1: []}, 0.9)


def test_a_row_of_a_table_has_the_median_and_the_range():
    assert median_and_range([3, 5, 4]) == "4 (3 to 5)"
    assert median_and_range([3, math.inf, math.inf]) == "none (3 to none)"
    found = summary(tuned({0.5: [[0.5, 0.9, 0.92], [0.9, 0.9, 0.9]]}, 0.9))
    assert found == {
        "rate": "0.5", "rounds to 90 %": "2 (1 to 2)", "last third (%)": "91 (90 to 92)",
    }  # fmt: skip


def test_each_training_begins_with_the_same_weights_and_is_that_of_train():
    def both(comm):
        cases = {"a": (FOUR, {"lr": 0.1}), "b": (FOUR, {"lr": 0.5}), "again": (FOUR, {"lr": 0.1})}
        alone = train(comm, MLP((64, 8, 10)), FOUR, lr=0.5, **ONCE)
        before = [p.clone() for p in NET.parameters()]
        found = train_each(comm, NET, cases, **ONCE)
        assert all(map(torch.equal, before, NET.parameters()))
        return found, alone

    found, alone = dlviz.launch(both, 2).results[0]
    states = {name: each["state"]["1.weight"] for name, each in found.items()}
    assert torch.equal(states["b"], alone["state"]["1.weight"])
    assert torch.equal(states["a"], states["again"]) and not torch.equal(states["a"], states["b"])


def test_what_the_server_receives_are_the_updates_that_it_combines():
    def both(comm):
        rows = received(comm, NET, FOUR, combine=robust.median, **ONCE)
        end = train(comm, MLP((64, 8, 10)), FOUR, combine=robust.median, **ONCE)
        return rows, end, received(comm, NET, FOUR)

    (rows, end, one), (none, _, _) = dlviz.launch(both, 2).results
    assert [tuple(each.shape) for each in rows] == [(4, 64 * 8 + 8 + 80 + 10)] * 2
    assert none is None and len(one) == 1
    start = torch.cat([p.detach().flatten() for p in NET.parameters()])
    final = torch.cat([end["state"][name].flatten() for name, _ in NET.named_parameters()])
    moved = sum(robust.median(each, torch.ones(4)) for each in rows)
    torch.testing.assert_close(start + moved, final)


def test_a_sweep_is_recorded_study_by_study_and_read_back(tmp_path):
    def worker(comm, cases):
        return [
            {**each, "of": 10, "right": [each["seed"] + int(10 * each["lr"])] * 3} for each in cases
        ]

    def cases(study, rates):
        data = {"study": study, "method": "mine", "data": "all"}
        return [{**data, "seed": seed, "lr": lr} for lr in rates for seed in (1, 0)]

    file = tmp_path / "sweep.json"
    record(file, [*cases("one", [0.1, 0.5]), *cases("two", [0.1])], worker)
    sweep = Sweep.load(file)
    assert sweep.methods("one", "all") == {
        "mine": {0.1: [[0.1] * 3, [0.2] * 3], 0.5: [[0.5] * 3, [0.6] * 3]}
    }
    assert sweep.tuned("one", "all", goal=0.6)["mine"].rounds == [math.inf, 1]
    with pytest.raises(ValueError, match="three: all was not made; there is one: all, two: all"):
        sweep.methods("three", "all")
    record(file, [*cases("one", [0.3]), *cases("two", [0.7])], worker, ["two"])
    again = Sweep.load(file)
    assert [*again.methods("one", "all")["mine"]] == [0.1, 0.5]
    assert [*again.methods("two", "all")["mine"]] == [0.7]
    assert again.made.keys() == {"machine", "date"}


def test_scores_are_those_of_the_rounds():
    def run(comm):
        images, labels = dlviz.datasets.digits("test")
        how = {"evaluate": lambda net: accuracy(net, images, labels), **ONCE}
        return train(comm, MLP((64, 8, 10)), FOUR, **how)

    end = dlviz.launch(run, 2).results[0]
    assert scores(end) == [*end.evaluations.values()] and len(scores(end)) == 2

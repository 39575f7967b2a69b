"""Whom a round asks: over many rounds as often as the rule says."""

import pytest
import torch

from dlviz.federated.selection import Selection

ROUNDS = 1000


def drawn(rule, fraction, sizes, available=None, spare=0, present=None, rounds=ROUNDS):
    """How often each client is selected, a round; and the selections."""
    choose = Selection(rule, fraction, spare, available, seed=3).choose
    present = list(range(len(sizes))) if present is None else present
    rounds = [choose(number, present, sizes) for number in range(rounds)]
    often = torch.zeros(len(sizes), dtype=torch.float64)
    for selected in rounds:
        assert selected == sorted(set(selected))
        often[selected] += 1
    return (often / len(rounds)).tolist(), rounds


def test_uniformly_any_client_is_as_likely_as_any_other():
    often, rounds = drawn("uniform", 0.3, [1] * 10)
    assert {len(selected) for selected in rounds} == {3}
    assert often == pytest.approx([0.3] * 10, abs=0.05)


def test_by_size_a_client_with_twice_the_data_is_twice_as_likely():
    often, rounds = drawn("size", 0.25, [10, 20, 30, 40])
    assert {len(selected) for selected in rounds} == {1}
    assert often == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.05)


def test_in_turn_every_client_has_been_asked_as_often_as_any_other():
    often, rounds = drawn("round_robin", 0.4, [1] * 5, rounds=50)
    assert often == [0.4] * 5 and rounds[:3] == [[0, 1], [2, 3], [0, 4]]


def test_under_poisson_each_is_drawn_on_its_own():
    often, rounds = drawn("poisson", 0.2, [1] * 10)
    counts = torch.tensor([float(len(selected)) for selected in rounds])
    assert often == pytest.approx([0.2] * 10, abs=0.05)
    assert counts.mean().item() == pytest.approx(2, abs=0.15)
    assert counts.var().item() == pytest.approx(10 * 0.2 * 0.8, rel=0.15)
    assert [] in rounds


def test_only_those_that_are_there_are_asked():
    chances = [1.0, 0.5, 0.0, 1.0]
    often, rounds = drawn("uniform", 1.0, [1] * 4, available=chances)
    assert often == pytest.approx(chances, abs=0.05) and often[0] == 1 and often[2] == 0
    assert [] not in rounds


def test_by_availability_one_that_is_twice_as_often_there_is_twice_as_likely():
    often, rounds = drawn("availability", 0.25, [1] * 4, available=[0.8, 0.4, 0.0, 0.4])
    assert {len(selected) for selected in rounds} == {1}
    assert often == pytest.approx([0.5, 0.25, 0.0, 0.25], abs=0.05)
    often, _ = drawn("availability", 0.25, [1] * 4, available=[0.8, 0.4, 0.4, 0.4], present=[0, 1])
    assert often == pytest.approx([2 / 3, 1 / 3, 0, 0], abs=0.05)


def test_who_is_lost_is_not_asked_and_more_than_needed_are_where_it_says_so():
    often, rounds = drawn("uniform", 0.5, [1] * 4, present=[1, 2, 3], spare=1, rounds=5)
    assert often[0] == 0 and {len(selected) for selected in rounds} == {3}
    assert Selection("uniform", 0.01, 0, None, 0).wanted(10) == 1


def test_a_draw_follows_from_seed_and_round_alone():
    choose = Selection("uniform", 0.5, 0, None, seed=1).choose
    first = choose(7, list(range(20)), [1] * 20)
    torch.randn(5)
    choose(3, list(range(20)), [1] * 20)
    assert choose(7, list(range(20)), [1] * 20) == first
    other = Selection("uniform", 0.5, 0, None, seed=2).choose
    assert other(7, list(range(20)), [1] * 20) != first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fraction": 0}, "fraction=0 of the clients cannot take part"),
        ({"fraction": 1.1}, "fraction=1.1"),
        ({"fraction": "half"}, "fraction='half'"),
        ({"fraction": float("nan")}, "fraction=nan"),
        ({"rule": "fastest"}, "selection='fastest' is not known: use uniform, size"),
        ({"spare": -1}, "spare=-1"),
        ({"rule": "availability"}, "needs available="),
        ({"available": [0.5, 2.0]}, r"available\[1\]=2.0 is not a probability"),
    ],
)
def test_numbers_that_choose_nobody_are_refused(options, message):
    how = {"rule": "uniform", "fraction": 0.5, "spare": 0, "available": None, "seed": 0} | options
    with pytest.raises(ValueError, match=message):
        Selection(**how)

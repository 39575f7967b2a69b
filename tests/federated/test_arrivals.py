"""Clients that share a process, their times from a model: who is late, and when a round ends."""

import federated_oracle as oracle
import pytest
from federated_oracle import THETA, dealt, gap, model

import dlviz
from dlviz.federated import Arrivals, train

SLOW = Arrivals(step=1.0, factors=[1, 1, 1, 3.5], latency=0.25)  # a round of one batch: 1.5 s


def each(comm, cases):
    return [train(comm, model(), dealt(4), **options) for options in cases]


def test_the_arrival_of_an_answer_is_the_closed_form():
    arrivals = Arrivals(0.1, [1.0, 2.0], latency=[0.5, 0.0], bandwidth=1e3)
    assert arrivals.seconds(0, 7, 300) == pytest.approx(2 * 0.5 + 0.3 + 0.7)
    assert arrivals.seconds(1, 7, 300) == pytest.approx(0.3 + 1.4)
    assert Arrivals(0.1).seconds(5, 3, 10**9) == pytest.approx(0.3)


def test_rounds_close_by_the_model_whoever_has_trained_when():
    cases = [
        {"rounds": 4, "arrivals": SLOW},
        {"rounds": 4, "arrivals": SLOW, "deadline": 2.0},
        {"rounds": 4, "arrivals": SLOW, "deadline": 2.0, "late_weight": 1.0},
        {"rounds": 2, "arrivals": SLOW, "deadline": 1.0},
        {"rounds": 3, "arrivals": SLOW, "fraction": 0.5, "spare": 2},
        {"rounds": 4},
    ]
    run = dlviz.launch(each, 2, args=(cases,))
    results = run.results[0]
    patient, dropping, taking, nobody, first, plain = (result["rounds"] for result in results)
    assert all(record.modelled for record in patient) and not any(r.modelled for r in plain)
    assert [record.seconds for record in patient] == [4.0] * 4  # 0.5 + 3.5
    assert gap(results[0]["state"], results[5]["state"]) == 0, "a model of times, real training"
    # Client 3, asked at 0, is there at 4: late in the rounds 0 and 1, and comes at the end of 1.
    assert [record.seconds for record in dropping] == [2.0] * 4
    assert [record.late for record in dropping] == [[3]] * 4
    assert [record.dropped for record in dropping] == [[], [3], [], [3]]
    assert [record.answered for record in dropping] == [[0, 1, 2]] * 4
    assert [record.nbytes // (8 * THETA) for record in dropping] == [8, 6, 8, 6]
    assert gap(results[1]["state"], oracle.sgd(model(), dealt(4)[:3], 4, 0.1)) < 1e-12
    assert [record.taken for record in taking] == [[], [3], [], [3]]
    assert gap(results[1]["state"], results[2]["state"]) > 1e-3
    assert [record.unchanged for record in nobody] == ["no client answered"] * 2
    assert [record.answered for record in first] == [[0, 1]] * 3
    assert [record.late for record in first] == [[2, 3]] * 3
    assert [record.dropped for record in first] == [[], [2], [2, 2, 3]]  # the last one after it all
    assert [record.seconds for record in first] == [1.5] * 3


@pytest.mark.parametrize(
    ("arrivals", "message"),
    [
        (Arrivals(0.0), "step of client 0 is 0.0"),
        (Arrivals(1.0, [1.0] * 3), "3 factors do not fit 4 clients"),
        (Arrivals(1.0, [1.0, 1.0, -1.0, 1.0]), "factors of client 2 is -1.0"),
        (Arrivals(1.0, bandwidth=float("nan")), "bandwidth of client 0 is nan"),
    ],
)
def test_times_that_are_none_are_refused(arrivals, message):
    with pytest.raises(ValueError, match=message):
        arrivals.check(4)

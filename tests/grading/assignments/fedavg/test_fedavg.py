"""Federated averaging: what its checks rest on, rehearsals, and right programs at many sizes. The
programs themselves are in wrong.toml."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
import torch
from judging import judged
from programs import held_to_rows
from rows import HandedIn, checks, rows
from torch import nn

from dlviz.grading.assignments.fedavg import checks as fedavg_checks
from dlviz.grading.assignments.fedavg.model import FlatNet
from dlviz.grading.assignments.fedavg.run import (
    Cohort,
    SelectSize,
    Stragglers,
    averaged,
    problem_of,
    timed,
)
from dlviz.grading.harness import sandbox
from dlviz.metrics import bytes_sent

globals().update(held_to_rows("fedavg"))
ROWS = {row.what: row for row in rows("fedavg")}
SOLUTION = ROWS["the solution"]
COHORT = Cohort(3, 3, 2, 4)
STRAGGLERS = Stragglers(4, 1, "124 13 3 124")
PACED = ("deadline", "answered", "no_hang")


def sizes_of(name):
    return getattr(fedavg_checks, f"check_{name}").sizes


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("row", [row for row in ROWS.values() if not row.loses], ids=str)
def test_right_programs_are_right_at_every_size_and_whoever_is_asked(row):
    cohorts = [(n, r, e, b) for n in (1, 2, 5) for r, e, b in ((2, 1, 1), (3, 2, 100))]
    asked = [(2, 1, "2 1 12 2"), (3, 2, "123 1 2 13"), (4, 0, "1234 12 34"), (5, 2, "45 1 2 3")]
    asked += [size for name in PACED for size in sizes_of(name)]
    for name in checks("fedavg"):
        sizes = asked if name in PACED else () if name == "select" else cohorts
        found = judged(row.check(name), row.programs(name), sizes)
        assert found.right, str(found)


def test_a_size_is_told_by_its_slow_clients_and_whom_its_rounds_ask():
    message = str(Stragglers(4, 2, "123 4"))
    assert message == "with 4 clients, clients 3 and 4 slow, and rounds that ask 1 2 3 and 4"
    assert str(Stragglers(2, 1, "2")) == "with 2 clients, client 2 slow, and rounds that ask 2"
    assert str(Stragglers(2, 0, "2")) == "with 2 clients and rounds that ask 2"


def test_sizes_at_which_any_mean_or_any_choice_is_right_give_no_points():
    assert Cohort(1, 2, 2, 7).trivial and SelectSize(5, 1.0).trivial
    assert not any(Cohort(*size).trivial for size in sizes_of("average"))
    assert not any(SelectSize(*size).trivial for size in sizes_of("select"))
    assert {(7, 0.3), (7, 0.4)} <= {*sizes_of("select")}, "so that both directions are tried"


@pytest.mark.slow
def test_a_round_that_never_ends_is_told_when_the_time_is_up(monkeypatch):
    monkeypatch.setattr(sandbox, "SECONDS", 1.0)
    monkeypatch.setattr(sandbox.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    goes_on = HandedIn("fedavg", "goes on", {"timed_server": [["break\n", "continue\n"]]}, {})
    begun = time.monotonic()
    found = fedavg_checks.check_deadline.grade(*goes_on.programs("deadline"))
    assert "had not ended after 1 s" in " ".join(str(found).split())
    assert time.monotonic() - begun < 30


# -- one process of plain torch --------------------------------------------------------------------


def module_of(weights):
    """The network of a check, made by hand."""
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4)).double()
    nn.utils.vector_to_parameters(weights.clone(), net.parameters())
    return net


def row_of(net):
    return nn.utils.parameters_to_vector(net.parameters()).detach()


def step(net, optimizer, inputs, labels):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(inputs), labels).backward()
    optimizer.step()


@pytest.mark.slow
def test_right_rounds_are_those_of_one_process_of_plain_torch():
    ran = averaged(SOLUTION.programs("average"), COHORT)
    problem, weights = ran.problem, ran.left[0].start
    counts, whole = problem.clients, sum(problem.clients.values())
    taken = {k: iter([rows for _, rows, _ in ran.left[k].asked]) for k in counts}
    for tested in ran.left[0].tested:
        mean = torch.zeros_like(weights)
        for k, count in counts.items():
            net, (inputs, labels) = module_of(weights), ran.left[k].data
            optimizer = torch.optim.SGD(net.parameters(), problem.rate, problem.momentum)
            for _ in range(COHORT.epochs * -(-count // COHORT.batch)):
                rows = next(taken[k])
                step(net, optimizer, inputs[rows], labels[rows])
            mean += count / whole * row_of(net)
        weights = mean
        assert torch.allclose(tested, weights, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_rounds_with_a_deadline_are_those_of_one_process_with_who_answered_by_the_trace():
    (timed_server,) = SOLUTION.programs("answered")
    ran = timed(timed_server, STRAGGLERS)
    assert [each.asked for each in ran.rounds] == [[1, 2, 4], [1, 3], [3], [1, 2, 4]]
    assert [each.answered for each in ran.rounds] == [[1, 2], [1, 3], [3], [1, 2]]
    problem, weights = ran.problem, ran.left[0].start
    for tested, each in zip(ran.left[0].tested, ran.rounds, strict=True):
        whole, mean = sum(problem.counts[k] for k in each.answered), torch.zeros_like(weights)
        for k in each.answered:
            net = module_of(weights)
            step(net, torch.optim.SGD(net.parameters(), problem.rate), *ran.left[k].data)
            mean += problem.counts[k] / whole * row_of(net)
        weights = mean
        assert torch.allclose(tested, weights, rtol=1e-12, atol=1e-12)
    took = [1000 * (each.end - each.begin) for each in ran.rounds]
    assert np.allclose(took, [30, 2 + 16 + 1, 1 + 16 + 1, 30], atol=0.2), took


def test_no_two_clients_have_as_many_examples_and_all_have_more_than_ten():
    problem = problem_of(6)
    counts = [*problem.clients.values()]
    assert len({*counts}) == 6 and min(counts) > 10
    assert not torch.equal(problem.weights(0), problem.weights(1))
    assert not torch.equal(problem.data(1)[0], problem.data(1)[0]), "drawn anew"
    assert FlatNet(problem.widths).size == len(problem.weights(0)) == 31 + 5


# -- rehearsals ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_rehearsal_shows_the_rounds_and_their_bytes():
    done = fedavg_checks.rehearse(*SOLUTION.programs("bytes"))
    words = r"4 clients; 3 rounds in \d+ ms; 154240 bytes .* do their local work; .* those of one"
    assert done.right and re.match(words, " ".join(repr(done).split())), repr(done)
    assert done.nbytes == 2 * 4 * 8 * (64 * 32 + 32 + 32 * 10 + 10)
    assert bytes_sent(done.trace)[0] == 3 * done.nbytes / 2
    spans = done.trace.spans
    batches = spans[spans.kind == "backward"]
    assert len(batches) == 3 * 2 * (4 + 3 + 2 + 1) and "collective" not in {*spans.kind}
    assert np.allclose(batches.end - batches.start, 0.005)


@pytest.mark.slow
def test_a_rehearsal_shows_rounds_that_end_at_a_deadline():
    (timed_server,), (select,) = (SOLUTION.programs(each) for each in ("deadline", "select"))
    done = fedavg_checks.rehearse_deadline(timed_server, select)
    message = " ".join(repr(done).split())
    assert done.right and "14 updates made, 12 of them in the weights" in message, message
    assert done.milliseconds == pytest.approx(40 + 25 + 25 + 40 + 1, abs=0.2)
    (asks_who_owes,) = ROWS["`choose` gets clients that owe an update"].programs("deadline")
    stuck = fedavg_checks.rehearse_deadline(asks_who_owes, select)
    words = r"server sends to client 4, which still owes an update, cell\.py.*should choose select"
    assert re.search(words, " ".join(repr(stuck).split())), repr(stuck)
    assert len(stuck.trace.spans) and not stuck.right


@pytest.mark.slow
def test_clients_with_two_labels_need_more_rounds():
    server, client = SOLUTION.programs("local")
    same = fedavg_checks.experiment(server, client, rounds=14)
    assert same.right and same.accuracy[int(same.rounds) - 1] >= 0.9 > same.accuracy[0]
    two = fedavg_checks.experiment(server, client, labels=2, rounds=14)
    assert two.right and not two.rounds <= 14 and "are not read right" in repr(two)
    assert len(two.accuracy) == 14 and two.accuracy[-1] < same.accuracy[-1]
    empty = fedavg_checks.experiment(*ROWS["no round is written yet"].programs("local"))
    assert "still to be written" in repr(empty) and not empty.right

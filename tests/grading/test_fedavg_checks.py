"""The checks of federated averaging: right programs get all points, each wrong one loses those it
should and gets a hint that fits."""

from __future__ import annotations

import re
import time
from functools import cache

import fedavg_programs as program
import numpy as np
import pytest
import torch
from courses import Assignment
from fedavg_programs import pair
from torch import nn

from dlviz.grading.assignments.fedavg import checks as fedavg_checks
from dlviz.grading.assignments.fedavg.model import FlatNet
from dlviz.grading.assignments.fedavg.run import (
    Cohort,
    SelectSize,
    Stragglers,
    averaged,
    problem_of,
    selected,
    timed,
)
from dlviz.grading.harness import feedback
from dlviz.grading.harness import sandbox as alone
from dlviz.metrics import bytes_sent

ROUNDS = {"local": 3, "average": 4, "bytes": 2}
SELECT = {"select": 2}
TIMED = {"deadline": 3, "answered": 3, "no_hang": 1}
POINTS = ROUNDS | SELECT | TIMED
COHORT = Cohort(3, 3, 2, 4)  # clients, rounds, epochs, batch
CHOICE = SelectSize(7, 0.4)
STRAGGLERS = Stragglers(4, 1, "124 13 3 124")  # client 4 is slow, and late in round 1

solution = cache(Assignment("fedavg").solution)


def check(name):
    return getattr(fedavg_checks, f"check_{name}")


def judged(checks, run):
    """What each check says of one run of a program: a CheckFailed, or None where it is right."""
    try:
        left = run()
    except feedback.CheckFailed as failed:
        return dict.fromkeys(checks, failed)
    return {name: failure(name, left) for name in checks}


def failure(name, left):
    try:
        check(name).judge(left)
    except feedback.CheckFailed as failed:
        return failed
    return None


def of_rounds(given, size=COHORT):
    return judged(ROUNDS, lambda: averaged(given, size))


def of_select(given, size=CHOICE):
    return judged(SELECT, lambda: selected(given, size))


def of_deadline(given, size=STRAGGLERS):
    return judged(TIMED, lambda: timed(given, size))


# -- right programs --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "functions", "size"),
    [
        ("average", ("server", "client"), (2, 2, 1, 6)),
        ("select", ("select",), (10, 0.3)),
        ("answered", ("timed_server",), (3, 1, "123 12")),
    ],
)
def test_the_solution_gets_all_points(name, functions, size, capsys):
    given = [solution(each) for each in functions]
    assert check(name)(*given, sizes=[size]) == check(name).points == POINTS[name]
    assert "Right, " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("given", program.RIGHT_ROUNDS)
def test_right_rounds_of_three_kinds_pass(given):
    assert of_rounds(given) == dict.fromkeys(ROUNDS)


@pytest.mark.slow
@pytest.mark.parametrize("given", program.RIGHT_SELECT)
def test_a_right_select_of_three_kinds_passes(given):
    assert of_select(given) == dict.fromkeys(SELECT)


@pytest.mark.slow
@pytest.mark.parametrize("given", program.RIGHT_TIMED)
def test_a_right_timed_server_of_three_kinds_passes(given):
    assert of_deadline(given) == dict.fromkeys(TIMED)


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("given", program.RIGHT_ROUNDS)
def test_right_rounds_are_right_at_every_size(given):
    for size in [(n, r, e, b) for n in (1, 2, 5) for r, e, b in ((2, 1, 1), (3, 2, 100))]:
        assert of_rounds(given, Cohort(*size)) == dict.fromkeys(ROUNDS), size


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("given", program.RIGHT_TIMED)
def test_a_right_timed_server_is_right_whoever_is_asked(given):
    sizes = [(2, 1, "2 1 12 2"), (3, 2, "123 1 2 13"), (4, 0, "1234 12 34"), (5, 2, "45 1 2 3")]
    sizes += [tuple(size) for name in TIMED for size in check(name).sizes]
    for size in sizes:
        assert of_deadline(given, Stragglers(*size)) == dict.fromkeys(TIMED), size


# -- wrong ones ------------------------------------------------------------------------------------

WRONG_ROUNDS = {  # a program, the checks that it loses, and what each says
    pair(program.Unweighted): {
        "average": "each client counts the same .*three times the examples has three times the say"
    },
    pair(program.CountsTheServersExamples): {
        "average": "server's own examples count .* has no update. Whose examples are in n"
    },
    pair(program.TrainsOnItsOwn): {
        "average": "server has computed 9 gradients on its own .* are to test with"
    },
    pair(program.Server, program.SendsWeights): {
        "average": "its weights and the clients' weights: 2 times .* Only a change is added"
    },
    pair(program.AveragesTheState, program.SendsTheState): {
        "local": "begins round 1 with an optimizer that is moving .*comes from elsewhere: the wei",
        "bytes": "sends rank . 1728 bytes .* optimizer's state stays where it is",
    },
    pair(program.SendsOnce, program.TrainsFromItsOwn): {
        "local": "client 1 begins round 1 .* that it ended the round before .*Which message brings",
        "average": "sends client 1 1 message .*trains on from its own weights. What does a round",
        "bytes": "rank 0 sends rank 1 288 bytes .*In which is nothing sent",
    },
    pair(program.Server, program.SameOrder): {
        "local": "the same order in every round.* is its generator seeded again"
    },
    pair(program.Server, program.NoOrder): {
        "local": "the same order in every round: 0, 1, 2 and 3 first.*as they lie. What draws"
    },
    pair(program.Server, program.OptimizerEachEpoch): {
        "local": "makes step 5 of round 0 with another velocity than its step 4 left: zero .*"
        "How often is it called in a round"
    },
    pair(program.CountsOfTheLoop): {
        "average": "client . counts by the examples of client . .*recv returns from whom"
    },
    pair(program.Server, program.OneOptimizer): {
        "local": "begins round 1 with an optimizer that is moving .*Where is sgd.. called"
    },
    pair(program.Server, program.IgnoresWhatItGets): {
        "local": "those that it had at the start .*older weights"
    },
    pair(program.AsksOneByOne): {
        "bytes": "in round 0 client 3 is sent its weights when client 1 has answered .*which one wa"
    },
    pair(program.MeanInPairs): {
        "average": "its weights and 0.[25]5?.* of the updates of clients 1, 2 and 3 .*mean of a m"
    },
    pair(program.AveragesBeforeAllCame): {
        "average": "a mean without client . .*is the mean made before all have come"
    },
    pair(program.DividesBeforeItAdds): {
        "average": "its weights and 8.28e-05, 0.00431 and 0.458 of the .* anew with each message"
    },
    pair(program.SumsOfWeights, program.SendsWeights): {
        "average": "a sum of the clients' weights: 3 times its own, and 1, 1 and 1 of .*add up to"
    },
    pair(program.Server, program.SendsZeros): {
        "average": "the weights that it had .*which line puts them into"
    },
    pair(program.Server, program.AddsWhatItGets): {
        "local": "begins round 1 .*1 times the server's and 1 times those that it ended .*added to"
    },
    pair(program.Server, program.BatchIsNumberOfBatches): {
        "local": "has computed 24 gradients .*an epoch has 4 batches here: `batch` is the number"
    },
    pair(program.Server, program.ForgetsTheLastRow): {
        "local": "row 16 does not come .*17 rows have the numbers 0 to 16. How many|short. Is it"
    },
    pair(program.Server, program.SumsGradients): {
        "local": "by its gradient, with those of earlier batches in it .*momentum is the"
    },
    pair(program.DoesNotDivide): {"average": "the sum of the updates .*your shares add up to"},
    pair(program.TimesExamples): {"average": "updates times their exam.*your shares add up to"},
    pair(program.Subtracts): {"average": "less the mean of the updates .*Which sign"},
    pair(program.LeavesTheLastOut): {"average": "a mean without client 3 .* left out"},
    pair(program.OverwritesItsBuffer): {"average": "after round 0 the server has .*overwritten"},
    pair(program.NeverAverages): {
        "average": "the server has the weights that it had .*which line puts them into",
    },
    pair(program.ForgetsTheWeights): {
        "average": "the mean of the updates alone: .*a change: of which weights"
    },
    pair(program.InFloat32): {"average": "fewer digits .*which type has the sum"},
    pair(program.NeverTests): {
        "local": "tested weights 0 times in 3 rounds",
        "average": "what does a round of the server end with",
    },
    pair(program.Server, program.DrawsWithReplacement): {
        "local": "row .* does not come, and row .* more than once .*has each row once"
    },
    pair(program.Server, program.DropsTheLastBatch): {
        "local": "who has 17 rows, has computed 24 gradients .*though it is short. Is it left out"
    },
    pair(program.Server, program.OneEpoch): {
        "local": "computed 15 gradients .*What is `epochs` for"
    },
    pair(program.Server, program.FullBatch): {"local": "computed 6 gradients .*full-batch descent"},
    pair(program.Server, program.UnequalBatches): {"local": "the batches have 4, 4, 3, 3 and 3 ro"},
    pair(program.Server, program.StaysAtTheStart): {
        "local": "computes gradient 1 of round 0 at other .*of the round's begin.*the one which"
    },
    pair(program.Server, program.DividesTheGradient): {
        "local": "makes step 0 of round 0 by 1/4 of its gradient .*divided by their number alr"
    },
    pair(program.Server, program.NeverSteps): {
        "local": "computed 30 gradients and made 0 steps",
        "average": "when optimizer.step.weights, gradient. is called",
    },
    pair(program.Server, program.TellsItsNeighbour): {
        "bytes": "client [23] sends to client 1 .*clients do not know each other"
    },
    pair(program.Broadcasts, program.IsBroadcastTo): dict.fromkeys(
        ROUNDS, "ready-made code was called: comm.broadcast, fedavg_programs.py:.*who sends what"
    ),
    pair(program.MakesFloat32): dict.fromkeys(ROUNDS, "message mismatch.*torch.empty_like takes"),
    pair(program.HidesItsErrors): dict.fromkeys(
        ROUNDS, "rank 0 met ValueError: .*, and went on .*an `except` of yours"
    ),
    pair(program.ByTheLibrary): dict.fromkeys(
        ROUNDS, r"ready-made code was called: dlviz.federated's train, fedavg_programs.py:\d+: fed"
    ),
    pair(program.HidesTheLibrary): dict.fromkeys(ROUNDS, "dlviz.federated's train, .*who sends wh"),
    pair(program.not_written, program.not_written): dict.fromkeys(ROUNDS, "still to be written"),
    pair(program.nothing, program.nothing): {
        "local": "tested weights 0 times",
        "average": "tested weights 0 times",
        "bytes": "rank 0 sends rank 1 0 bytes .*In which is nothing sent",
    },
}
WRONG_SELECT = {
    program.takes_the_first: "the same clients in every round: .2, 5, 8. .*does it begin again",
    program.begins_again: "the same clients in every round.*go on where the last one ended",
    program.draws_with_replacement: "each once, of those .*which draw puts nobody back",
    program.draws_from_another_rng: "leads to other clients.*What else is yours drawn from",
    program.takes_all: "select returns .2, 5, 8, 11, 14, 17, 20. of .*What is `fraction` for",
    program.takes_nobody: "select returns .*0.4 x 7 is 2.8: round gives the number that is near",
    program.cuts_off: "select returns .*0.4 x 7 is 2.8: round gives the number that is nearest",
    program.numbers_them_anew: "may have gaps: who is not in the list is not there",
    program.likes_one: "nobody is drawn in 1.. of 1200 rounds, and client 2 is in all others",
    program.likes_the_last: "client 20 is the last .* more often. All others .* 4.. times each",
    program.nothing: "select returns None .*which line returns the clients",
    program.not_written: "the function raised NotImplementedError.*still to be written",
}
WRONG_TIMED = {
    program.DividesByAll: {
        "answered": "after round 0 .*over the examples of all clients .*did not answer, have no up"
    },
    program.CountsTheDropped: {
        "answered": "client 4, who did not answer in time, counts .*the others' shares no longer"
    },
    program.UnweightedTimed: {"answered": "each client counts the same .*By what is each update"},
    program.WaitsForAll: {
        "deadline": "round 0 takes 4. ms .* 30 ms, until the deadline .*comes after the deadline"
    },
    program.DeadlineSlides: {
        "deadline": "round 0 takes 4. ms .* 30 ms, until the deadline .*the same for all receives"
    },
    program.LateInTheWrongRound: {
        "deadline": "round 1 is over after .* has not answered .*Is it taken for the answer that",
        "answered": "after round 1 .*client 4 that belongs to an earlier .*What in a message says",
    },
    program.DeadlineAfterTheSends: {
        "deadline": "round 0 takes 33 ms .* 30 ms, until the deadline .*counts from the begin of"
    },
    program.WaitsUntilTheDeadline: {
        "deadline": "round 1 takes 3. ms .*the last one has answered .*still wait for"
    },
    program.DeadlineOfTheRun: dict.fromkeys(
        TIMED, "choose.... has nobody .* a moment on the run's clock: which one is it"
    ),
    program.TakesTheFirst: {
        "deadline": "round 0 is over after 1. ms, and client 2 has not.*what ends that loop before"
    },
    program.LateIsAddedAtOnce: {"answered": "after round 1 .*client 4 that belongs to an earlier"},
    program.AsksWhoOwes: {
        "no_hang": r"in round 1 choose is given clients .1, 2, 3, 4. .* too late"
    },
    program.NeverFreesTheLate: {
        "no_hang": r"in round . choose is given clients .1, 2, 3. .*also when that is too late"
    },
    program.LeavesUpdates: {"no_hang": "returns while client 4 still owes .*Who is still in one"},
    program.KeepsViews: {
        "answered": "after round 0 .*the update of client 2 in place of each .*that you have kept"
    },
    program.SendsTheOldWeights: {
        "answered": "in round 1 client 1 gets other weights than .*which one is sent"
    },
    program.NamesNoRound: {
        "deadline": "message to client 1 in round 1 begins with 0",
        "answered": "Rounds count from 0",
    },
    program.NeverTestsTimed: dict.fromkeys(TIMED, "tested weights 0 times in 4 rounds"),
    program.AsksNobody: {
        "deadline": "nobody is asked in round 0",
        "answered": "choose returns",
        "no_hang": "choose is called 0 times Expected: once in each of the 4 rounds",
    },
    program.ReceivesFromAll: dict.fromkeys(
        TIMED, "waits for an update, and no client owes one.*how many were asked"
    ),
    program.KeysNone: dict.fromkeys(TIMED, "recv returns None where the deadline has passed"),
    program.TimedByTheLibrary: dict.fromkeys(TIMED, "dlviz.federated's train, .*who sends what"),
    program.not_written: dict.fromkeys(TIMED, "still to be written"),
}
MOST_LIKELY = {  # the others are for `make sweep` alone
    *[*WRONG_ROUNDS][:7],
    pair(program.ByTheLibrary),
    program.takes_the_first,
    program.draws_with_replacement,
    *[*WRONG_TIMED][:6],
    program.AsksWhoOwes,
}


def cases(wrong):
    return [
        pytest.param(*each, marks=[] if each[0] in MOST_LIKELY else [pytest.mark.sweep])
        for each in wrong.items()
    ]


def assert_told(found, words):
    told = {name: " ".join(str(each).split()) for name, each in found.items() if each}
    assert set(told) == set(words), told
    for name, said in told.items():
        assert re.search(words[name], said), said
        lines = [line for text in str(found[name]).splitlines() for line in feedback.wrapped(text)]
        assert len(lines) <= 16 and max(map(len, lines)) <= feedback.WIDTH


@pytest.mark.slow
@pytest.mark.parametrize(("given", "words"), cases(WRONG_ROUNDS))
def test_wrong_rounds_lose_the_checks_they_should_and_are_told_what_fits(given, words):
    assert_told(of_rounds(given), words)


@pytest.mark.slow
@pytest.mark.parametrize(("given", "words"), cases(WRONG_SELECT))
def test_a_wrong_select_is_told_what_fits(given, words):
    assert_told(of_select(given), {"select": words})


@pytest.mark.slow
@pytest.mark.parametrize(("given", "words"), cases(WRONG_TIMED))
def test_a_wrong_timed_server_loses_the_checks_it_should_and_is_told_what_fits(given, words):
    assert_told(of_deadline(given), words)


@pytest.mark.slow
def test_nobody_who_answers_leaves_no_numbers_where_it_is_divided_by_them():
    found = of_deadline(program.DividesByZero, Stragglers(2, 1, "2 1"))
    words = {"answered": "no numbers .NaN.*nothing to divide", "no_hang": "no numbers .NaN. in the"}
    assert_told(found, words)


def test_a_size_is_told_by_its_slow_clients_and_whom_its_rounds_ask():
    told = str(Stragglers(4, 2, "123 4"))
    assert told == "with 4 clients, clients 3 and 4 slow, and rounds that ask 1 2 3 and 4"
    assert str(Stragglers(2, 1, "2")) == "with 2 clients, client 2 slow, and rounds that ask 2"
    assert str(Stragglers(2, 0, "2")) == "with 2 clients and rounds that ask 2"


@pytest.mark.slow
def test_a_select_that_rounds_up_is_told_where_the_nearest_number_is_below():
    words = "select returns .*0.3 x 7 is 2.1: round gives the number that is nearest"
    assert_told(of_select(program.rounds_up, SelectSize(7, 0.3)), {"select": words})
    assert of_select(program.rounds_up) == {"select": None}, "so both directions are tried"
    assert {(7, 0.3), (7, 0.4)} <= {*check("select").sizes}


def test_sizes_at_which_any_mean_or_any_choice_is_right_give_no_points():
    assert Cohort(1, 2, 2, 7).trivial and SelectSize(5, 1.0).trivial
    assert not any(Cohort(*size).trivial for size in check("average").sizes)
    assert not any(SelectSize(*size).trivial for size in check("select").sizes)


@pytest.mark.slow
def test_each_size_has_its_share_of_the_points():
    report = check("answered").grade(program.CountsTheDropped, sizes=[(3, 1, "123"), (2, 0, "12")])
    assert report.points == 1.5 and "right at clients x slow x rounds = 2x0x1" in str(report)


@pytest.mark.slow
def test_a_round_that_never_ends_is_told_when_the_time_is_up(monkeypatch):
    monkeypatch.setattr(alone, "SECONDS", 1.0)
    monkeypatch.setattr(alone.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    begun = time.monotonic()
    found = of_deadline(program.GoesOnAfterNone)["deadline"]
    assert found is not None
    assert "had not ended after 1 s" in found.seen and time.monotonic() - begun < 30


# -- what the checks rest on -----------------------------------------------------------------------


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
    ran = averaged(program.RIGHT_ROUNDS[1], COHORT)
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
    ran = timed(program.waits_in_vain, STRAGGLERS)
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


@pytest.mark.slow
def test_a_rehearsal_shows_the_rounds_and_their_bytes():
    done = fedavg_checks.rehearse(program.server, program.client)
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
    done = fedavg_checks.rehearse_deadline(program.waits_in_vain, program.samples)
    told = " ".join(repr(done).split())
    assert done.right and "14 updates made, 12 of them in the weights" in told, told
    assert done.milliseconds == pytest.approx(40 + 25 + 25 + 40 + 1, abs=0.2)
    stuck = fedavg_checks.rehearse_deadline(program.AsksWhoOwes, program.samples)
    words = "server sends to client 4, which still owes an update, fedavg_pro.*is choose to choose"
    assert re.search(words, " ".join(repr(stuck).split())), repr(stuck)
    assert len(stuck.trace.spans) and not stuck.right


@pytest.mark.slow
def test_clients_with_two_labels_need_more_rounds():
    same = fedavg_checks.experiment(program.server, program.client, rounds=14)
    assert same.right and same.accuracy[int(same.rounds) - 1] >= 0.9 > same.accuracy[0]
    two = fedavg_checks.experiment(program.server, program.client, labels=2, rounds=14)
    assert two.right and not two.rounds <= 14 and "are not read right" in repr(two)
    assert len(two.accuracy) == 14 and two.accuracy[-1] < same.accuracy[-1]
    empty = fedavg_checks.experiment(program.not_written, program.not_written)
    assert "still to be written" in repr(empty) and not empty.right

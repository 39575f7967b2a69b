"""Clients whose process is killed, raises or hangs: the round ends without them and says who."""

import os
import re
import signal
import time

import out_of_time
import pytest
import torch
from federated_oracle import dealt, model

import dlviz
from dlviz.federated import server, train
from dlviz.federated.messages import ANSWER, PHASES, SIZES, UPDATE, Answer
from dlviz.machine import classroom

OPTIONS = {"rounds": 3, "batch": 16}
LONG = 0.5  # s, a deadline that a client keeps to


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def ends_in(comm, phase, lost=2, number=1):
    """Training in which the rank `lost` is killed as it begins a phase of a round."""
    span = comm.span

    def begin(kind, name=None, **fields):
        if comm.rank == lost and (kind, name, fields.get("step")) == ("phase", phase, number):
            kill()
        return span(kind, name, **fields)

    comm.span = begin
    return train(comm, model(), dealt(4), **OPTIONS)


@pytest.mark.parametrize("phase", PHASES)
def test_a_client_that_is_lost_in_a_phase_is_named_and_the_others_go_on(phase):
    """Clients 1 and 3: the ranks 2 and 4."""
    run = dlviz.launch(ends_in, 5, args=(phase,), may_lose=(1, 2, 3, 4), timeout=30)
    run.trace.validate()
    assert run.lost[2].how == "was killed by signal 9" and set(run.lost) == {2}
    records = run.results[0]["rounds"]
    assert [record.selected for record in records][0] == [0, 1, 2, 3]
    assert sum((record.lost for record in records), []) == [1]
    for record in records:
        assert set(record.selected) <= {*record.answered, *record.late, *record.lost}
        assert set(record.answered) <= set(record.selected) and not record.late
    there = phase == PHASES[4]  # its update of that round had been sent
    assert (1 in records[1].answered) == there and 1 not in records[2].answered
    assert all({0, 2, 3} <= set(record.answered) for record in records)
    assert all(torch.isfinite(value).all() for value in run.results[0]["state"].values())


def test_clients_that_share_a_rank_are_lost_together_and_nobody_is_left():
    run = dlviz.launch(ends_in, 2, args=(PHASES[2], 1), may_lose=(1,), timeout=30)
    records = run.results[0]["rounds"]
    assert [record.answered for record in records] == [[0, 1, 2, 3], [], []]
    assert [record.lost for record in records] == [[], [0, 1, 2, 3], []]
    assert [record.unchanged for record in records] == [
        "",
        "no client answered",
        "no client was there to be selected",
    ]


def test_clients_that_raise_in_any_phase_are_named_and_the_others_go_on():
    """Rank 2 + i in phase i, all in round 1; rank 1 goes on."""

    def worker(comm):
        span = comm.span

        def begin(kind, name=None, **fields):
            if comm.rank > 1 and (name, fields.get("step")) == (PHASES[comm.rank - 2], 1):
                return {}["battery"]
            return span(kind, name, **fields)

        comm.span = begin
        return train(comm, model(), dealt(6), **OPTIONS)

    run = dlviz.launch(worker, 7, may_lose=tuple(range(1, 7)), timeout=30)
    assert {rank: each.how for rank, each in run.lost.items()} == dict.fromkeys(
        range(2, 7), "raised KeyError: 'battery'"
    )
    records = run.results[0]["rounds"]
    assert sorted(sum((record.lost for record in records), [])) == [1, 2, 3, 4, 5]
    assert all(0 in record.answered for record in records)
    assert 5 in records[1].answered and records[2].answered == [0]


@pytest.mark.filterwarnings("ignore:rank . sent rank .:RuntimeWarning")  # they never take it
def test_clients_that_hang_in_any_phase_hold_up_no_round_and_end_with_the_run(
    tmp_path, monkeypatch
):
    """Rank 2 + i in phase i, all in round 1; rank 1 goes on."""

    def worker(comm):
        span = comm.span

        def begin(kind, name=None, **fields):
            stuck = comm.rank > 1 and (kind, name) == ("phase", PHASES[comm.rank - 2])
            while stuck and fields.get("step") == 1:
                time.sleep(1)
            return span(kind, name, **fields)

        comm.span = begin
        options = {"rounds": 4, "deadline": 0.15}
        result = train(comm, model(), dealt(6), **options)
        if comm.rank == 0:
            (tmp_path / "through").touch()
        return result

    out_of_time.when(monkeypatch, (tmp_path / "through").exists)
    run = dlviz.launch(worker, 7, may_lose=tuple(range(1, 7)))
    run.trace.validate()
    assert set(run.lost) == {2, 3, 4, 5, 6}
    assert {each.how for each in run.lost.values()} == {
        "was still at work when the time of the run, 60 s, was up"
    }
    records = run.results[0]["rounds"]
    assert len(records) == 4 and not any(record.lost for record in records)
    for record in records[2:]:
        assert set(record.late) >= {1, 2, 3, 4, 5} and set(record.answered) <= {0}


def test_a_client_that_hangs_on_a_paced_run_passes_no_deadline_and_is_named_when_time_is_up(
    tmp_path, monkeypatch
):
    def hang(update, client, number):
        while client == 1:
            (tmp_path / "there").touch()
            time.sleep(1)
        return update

    options = {"rounds": 2, "deadline": 0.05, "outgoing": hang}
    out_of_time.when(monkeypatch, (tmp_path / "there").exists)
    with pytest.raises(dlviz.RunTimeout) as error:
        dlviz.launch(
            train,
            3,
            machine=classroom(3),
            args=(model(), dealt(2)),
            kwargs=options,
            may_lose=(1, 2),
        )
    assert "rank 0 waits in recv from rank 1 or 2" in str(error.value)
    assert re.search(r"rank 2 is at .*: time\.sleep\(1\)", str(error.value))


@pytest.mark.filterwarnings("ignore:rank . sent rank .:RuntimeWarning")
def test_a_client_that_announces_an_update_and_stops_holds_up_no_round(tmp_path, monkeypatch):
    """Rank 2 hangs and rank 3 is killed, each when the word is out and the update is not."""

    def worker(comm):
        isend = comm.isend

        def send_or_stop(tensor, dst, tag=0):
            if comm.rank == 1 or tag != UPDATE:
                return isend(tensor, dst, tag)
            comm.send(Answer(0, comm.rank - 1, 30, 30, 1.0).packed(), 0, ANSWER)
            while comm.rank == 2:
                time.sleep(1)
            kill()

        comm.isend = send_or_stop
        result = train(comm, model(), dealt(3), rounds=6, batch=16, deadline=0.2)
        if comm.rank == 0:
            (tmp_path / "through").touch()
        return result

    out_of_time.when(monkeypatch, (tmp_path / "through").exists)
    run = dlviz.launch(worker, 4, may_lose=(1, 2, 3))
    assert {*run.lost} == {2, 3}
    records = run.results[0]["rounds"]
    said = [record.rejected[1] for record in records if 1 in record.rejected]
    assert said == ["rank 2 announced an update of it that did not come"]
    assert sum((record.lost for record in records), []) == [2]
    assert all(1 in record.late for record in records)


UNREPORTED = "has not reported how many examples it has"


@pytest.mark.filterwarnings("ignore:rank . sent rank .:RuntimeWarning")
def test_a_client_that_hangs_before_it_begins_holds_up_no_round_and_is_named_in_each(
    tmp_path, monkeypatch
):
    def worker(comm):
        begun = comm.now()
        while comm.rank == 2:
            time.sleep(1)
        result = train(comm, model(), dealt(3), rounds=2, batch=16, deadline=0.05)
        if comm.rank == 0:
            (tmp_path / "through").touch()
        return result, comm.now() - begun

    out_of_time.when(monkeypatch, (tmp_path / "through").exists)
    run = dlviz.launch(worker, 4, may_lose=(2,))
    run.trace.validate()
    assert {*run.lost} == {2}
    result, seconds = run.results[0]
    assert [each.selected for each in result["rounds"]] == [[0, 1, 2]] * 2
    assert [each.rejected for each in result["rounds"]] == [{1: UNREPORTED}] * 2
    assert not any(1 in (*each.late, *each.lost) for each in result["rounds"])
    assert seconds >= server.PATIENCE * 0.05


@pytest.mark.filterwarnings("ignore:rank . sent rank .:RuntimeWarning")  # rounds that it slept
@pytest.mark.parametrize("asleep", [2, 3])
def test_a_client_that_begins_late_takes_part_from_then_on(tmp_path, asleep):
    """It sleeps through two of three rounds, or through all: it ends with the others."""

    def worker(comm):
        server.PATIENCE = 1
        over = []

        def evaluate(net):
            over.append(0)
            if len(over) == asleep:
                (tmp_path / "awake").touch()
                comm.probe(2, SIZES)  # it reports
            return 0.0

        while comm.rank == 2 and not (tmp_path / "awake").exists():
            time.sleep(0.01)
        options = {**OPTIONS, "deadline": LONG, "evaluate": evaluate}
        return train(comm, model(), dealt(3), **options)["rounds"]

    run = dlviz.launch(worker, 4, timeout=60)
    assert run.trace.meta["outcome"] == "completed"
    reported = [False] * asleep + [True] * (3 - asleep)
    assert [each.rejected for each in run.results[0]] == [
        {} if ok else {1: UNREPORTED} for ok in reported
    ]
    assert [1 in each.answered for each in run.results[0]] == reported


def test_without_a_deadline_a_client_that_hangs_before_it_begins_is_named_when_time_is_up(
    tmp_path, monkeypatch
):
    def worker(comm):
        while comm.rank == 2:
            (tmp_path / "there").touch()
            time.sleep(1)
        return train(comm, model(), dealt(3), rounds=1)

    out_of_time.when(monkeypatch, (tmp_path / "there").exists)
    with pytest.raises(dlviz.RunTimeout) as error:
        dlviz.launch(worker, 4)
    assert "rank 0 waits in recv from rank 2" in str(error.value)
    assert re.search(r"rank 2 is at .*: time\.sleep\(1\)", str(error.value))


@pytest.mark.parametrize("phase", PHASES)
def test_where_the_server_dies_in_a_phase_the_run_ends_and_names_it_first(phase):
    with pytest.raises(dlviz.RankError, match="^rank 0 was killed by SIGKILL"):
        dlviz.launch(ends_in, 3, args=(phase, 0), may_lose=(1, 2), timeout=30)

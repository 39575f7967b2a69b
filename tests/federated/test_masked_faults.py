"""Training under secure aggregation whose clients, or whose server, end in any phase and exchange.

After each test conftest.py looks for processes and shared memory that are left.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import tempfile
import time

import federated_oracle as oracle
import out_of_time
import pytest
import torch
from federated_oracle import dealt, model
from test_masked import CLIP, HOW, expected_state
from timing import MOST, attempts

import dlviz
from dlviz.cli.federated import summary
from dlviz.datasets import digits
from dlviz.federated import Secure, shutdown, train
from dlviz.federated.messages import PHASES
from dlviz.federated.secure.messages import EXCHANGES

DEADLINE = 0.5  # s, of rounds and exchanges in which a client hangs
ENDS = {"is killed": "was killed by signal 9", "raises": "raised KeyError: 'battery'",
        "hangs": "was still at work when the time of the run, 60 s, was up"}  # fmt: skip


def worker(comm, folder, places, end, clients, threshold, **options):
    """Training in whose first round some ranks end as they begin a phase or an exchange; `places`
    says which. What ranks leave in files they leave in `folder`."""
    os.chdir(folder)
    tempfile.tempdir = str(folder)
    shutdown.PATIENCE, shutdown.LEAST = 0.5, 0.0
    span, at = comm.span, [0]

    def begin(kind, name=None, **fields):
        at[0] = fields.get("step", at[0])
        if at[0] == 0 and places.get(comm.rank) == name:
            if end == "raises":
                return {}["battery"]
            while end == "hangs":
                time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
        return span(kind, name, **fields)

    oracle.sgd(model(), clients, 1, 0.1)  # what torch sets up at first is no part of a deadline
    comm.span = begin
    result = train(comm, model(), clients, secure=Secure(threshold, CLIP), **HOW, **options)
    if comm.rank == 0:
        (folder.parent / "through").touch()
    return result


def run_of(tmp_path, monkeypatch, places, end, others=3):
    """A run of two rounds: as many clients as there are `places`, one of which each ends at, and
    so many `others`. The others are more than half."""
    folder, n = tmp_path / "files", len(places) + others
    folder.mkdir()
    stops = {others + 1 + i: place for i, place in enumerate(places)}
    options = {"rounds": 2}
    if end == "hangs":
        options["deadline"] = DEADLINE
        out_of_time.when(monkeypatch, (tmp_path / "through").exists)
    args = folder, stops, end, dealt(n), others
    run = dlviz.launch(worker, n + 1, args=args, kwargs=options, may_lose=tuple(stops))
    assert not [*folder.iterdir()], "a file is left"
    return run, {rank - 1: place for rank, place in stops.items()}


GRID = [  # how each of some clients ends, where, and how many others there are
    ("is killed", PHASES, 6),
    ("raises", PHASES, 6),
    ("raises", EXCHANGES, 5),
    ("hangs", PHASES[1::2] + PHASES[4:], 4),
    ("hangs", EXCHANGES[::2], 3),
    ("hangs", EXCHANGES[1::2], 3),
]
ALONE = [(end, (place,), 3) for end in ENDS for place in (*PHASES, *EXCHANGES)]
GRID += [pytest.param(*each, marks=pytest.mark.sweep) for each in ALONE]


@pytest.mark.filterwarnings("ignore:rank . sent rank .*:RuntimeWarning")  # they never take it
@pytest.mark.parametrize(("end", "places", "others"), GRID)
def test_the_round_is_the_others_and_the_record_and_the_trace_say_who_and_when(
    tmp_path, monkeypatch, end, places, others
):
    most = MOST if end == "hangs" else 1  # others may be late too
    for number, attempt in enumerate(attempts(most)):
        (folder := tmp_path / str(number)).mkdir()
        run, gone = run_of(folder, monkeypatch, places, end, others)
        with attempt:
            check(run, gone, end, others)


def check(run, gone, end, others):
    run.trace.validate()
    first, second = run.results[0]["rounds"]
    stayed = [*range(others)]
    ready = [k for k in (*stayed, *gone) if gone.get(k) not in PHASES[:4]]
    summed = [k for k in ready if gone.get(k) not in EXCHANGES[:3]]
    assert first.selected == [*stayed, *gone]
    assert (first.answered, second.answered) == (summed, stayed)
    assert not (first.unchanged or second.unchanged or first.rejected or second.rejected)
    expected = expected_state(dealt(len(first.selected)), {0: (summed, len(ready)),
                                                           1: (stayed, others)})  # fmt: skip
    assert oracle.gap(run.results[0]["state"], expected) == 0

    assert {k + 1: ENDS[end] for k in gone} == {rank: lost.how for rank, lost in run.lost.items()}
    assert {*run.trace.meta["lost"]} == {str(k + 1) for k in gone}
    if end == "hangs":
        assert (first.late, second.late) == ([k for k in gone if k not in summed], [*gone])
        assert not (first.lost or second.lost)
        return
    assert not (first.late or second.late)
    at_the_end = [k for k, place in gone.items() if place == PHASES[4]]  # of the round, or after it
    assert sorted(first.lost + second.lost) == [*gone] and {*second.lost} <= {*at_the_end}
    spans = run.trace.only(rank=0, kind="phase").spans
    closes = spans.wall_end[spans.step == 0].max()
    for k in gone.keys() - at_the_end:
        assert 0 < run.lost[k + 1].when < closes


def test_the_summary_of_the_command_names_who_was_lost_and_the_round(tmp_path, monkeypatch):
    run, gone = run_of(tmp_path, monkeypatch, EXCHANGES[2:3], "is killed")
    options = argparse.Namespace(ranks=5, own={"secure": 3})
    said = summary(options, run, model(), digits("test", torch.float64), 4)
    assert re.search(r"^lost +client 3 in round 0$", said, re.M)
    assert re.search(r"^answered +clients 0, 1, 2 in 2 rounds$", said, re.M)


@pytest.mark.parametrize(
    "place",
    [*(pytest.param(place, marks=pytest.mark.sweep) for place in PHASES), *EXCHANGES],
)
def test_where_the_server_dies_everybody_stops_and_it_is_named_first(tmp_path, place):
    args = tmp_path, {0: place}, "is killed", dealt(3), 2
    with pytest.raises(dlviz.RankError, match="^rank 0 was killed by SIGKILL"):
        dlviz.launch(worker, 4, args=args, kwargs={"rounds": 2}, may_lose=(1, 2, 3), timeout=30)
    assert not [*tmp_path.iterdir()], "a file is left"

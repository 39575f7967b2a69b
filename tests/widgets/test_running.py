"""A run that an explorer starts: shown, stopped, interrupted, one at a time."""

from __future__ import annotations

import json
import threading
import time

import pytest
from kernel import ask

from dlviz.widgets import (
    CollectiveExplorer,
    ConsistencyExplorer,
    FederatedExplorer,
    MeshExplorer,
    PlanExplorer,
    ScheduleExplorer,
    TensorExplorer,
)
from dlviz.widgets.collectives import explorer as collectives
from dlviz.widgets.running import doing_words

SOON = 20.0  # s: on a busy machine
FOUND = {"algorithm": "ring", "measured": 1e-3}


def until(true):
    deadline = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def ran(explorer):
    return json.loads(explorer.state)["run"]


class Work:
    """Stands for what runs on ranks: it reports itself until it may end."""

    def __init__(self):
        self.may_end, self.deaf = threading.Event(), threading.Event()
        self.running = self.most = self.ended = 0

    def __call__(self, progress, **controls):
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            progress(None, 2, 4)
            while self.deaf.is_set():
                time.sleep(0.005)
            while not self.may_end.wait(0.005):
                progress("turn", 1, 3)
        finally:
            self.running -= 1
            self.ended += 1
        return {**FOUND, "algorithm": controls["algorithm"]}, "its trace"


@pytest.fixture
def work(monkeypatch):
    own = Work()
    monkeypatch.setattr(collectives, "run", own)
    yield own
    own.may_end.set()
    own.deaf.clear()
    until(lambda: not own.running)


def test_the_button_starts_a_run_and_the_widget_goes_on_answering(work):
    explorer = CollectiveExplorer()
    assert ask(explorer, "run") == {} and explorer.doing
    until(lambda: json.loads(explorer.doing).get("share") == 1 / 3)
    assert json.loads(explorer.doing)["says"] == "Running on real ranks, paced: turn 2 of 3 …"
    explorer.theme = "dark"
    ask(explorer, "run")  # one is in progress
    work.may_end.set()
    until(lambda: explorer.doing == "")
    assert ran(explorer) == FOUND and explorer.measured == 1e-3 and work.ended == 1


def test_stop_is_answered_immediately_even_while_the_run_cannot_hear(work):
    explorer = CollectiveExplorer()
    work.deaf.set()
    ask(explorer, "run")
    until(lambda: work.running)
    ask(explorer, "stop")
    assert explorer.doing == "" and ran(explorer) == {"stopped": "The run was interrupted."}
    ask(explorer, "stop")  # none is in progress
    reported = json.loads(explorer.state)
    work.deaf.clear()
    until(lambda: not work.running)
    time.sleep(0.05)
    assert json.loads(explorer.state) == reported and reported["ran"] == 1, "it is not shown again"
    work.may_end.set()
    explorer.run()
    assert ran(explorer) == FOUND


def test_a_control_that_changes_ends_the_run_of_what_was_chosen(work):
    explorer = CollectiveExplorer()
    ask(explorer, "run")
    until(lambda: work.running)
    explorer.ranks = 5
    assert ran(explorer) == {"stopped": "The run was stopped: a control was changed."}
    assert explorer.doing == ""
    until(lambda: not work.running)
    explorer.algorithm = "tree"
    assert ran(explorer) is None
    work.may_end.set()
    explorer.run()
    assert ran(explorer)["algorithm"] == "tree"


@pytest.mark.parametrize(
    ("Explorer", "other", "same"),
    [
        (CollectiveExplorer, {"topology": "tree"}, {}),
        (ConsistencyExplorer, {"workers": 3}, {"backups": 1}),  # no method's but another one's
        (FederatedExplorer, {"epochs": 1}, {"attack": "sign_flip"}),  # nobody attacks
        (MeshExplorer, {"slower": 2}, {}),
        (PlanExplorer, {"memory": 1_000_000}, {"memory": 3_900_000}),  # another is best
        (ScheduleExplorer, {"microbatches": 4}, {"beside": "gpipe"}),
        (TensorExplorer, {"batch": 128}, {}),
    ],
)
@pytest.mark.parametrize("refused", [False, True])
def test_a_run_ends_at_a_change_of_what_it_depends_on_and_of_that_alone(
    monkeypatch, Explorer, other, same, refused
):
    work = Work()
    explorer = Explorer()
    monkeypatch.setattr(explorer, "work", lambda: lambda progress: work(progress, algorithm=""))
    ask(explorer, "run")
    until(lambda: work.running)
    ask(explorer, "change", values=same)
    assert explorer.doing, same
    ask(explorer, "change", values=dict.fromkeys(other, "none") if refused else other)
    assert ran(explorer) == {"stopped": "The run was stopped: a control was changed."}
    assert explorer.doing == "" and explorer.measured is None
    until(lambda: not work.running)


def test_runs_of_two_widgets_take_turns_and_one_that_waits_can_be_stopped(work):
    first, second, third = CollectiveExplorer(), CollectiveExplorer(), CollectiveExplorer()
    ask(first, "run")
    until(lambda: work.running)
    ask(second, "run")
    ask(third, "run")
    until(lambda: "another widget's run" in second.doing and "another" in third.doing)
    third.stop()
    assert ran(third) == {"stopped": "The run was interrupted."}
    work.may_end.set()
    until(lambda: first.doing == second.doing == "")
    assert ran(first) == ran(second) == FOUND
    assert work.most == 1 and work.ended == 2


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_cell_is_shown_and_goes_on(monkeypatch, interrupt):
    def run(progress, **controls):
        raise interrupt

    monkeypatch.setattr(collectives, "run", run)
    explorer = CollectiveExplorer()
    with pytest.raises(interrupt):
        explorer.run()
    assert ran(explorer) == {"stopped": "The run was interrupted."} and explorer.doing == ""
    monkeypatch.setattr(collectives, "run", lambda progress, **controls: (FOUND, None))
    explorer.run()
    assert ran(explorer) == FOUND


def test_what_cannot_run_shows_an_error_and_starts_nothing():
    explorer = ScheduleExplorer("drawn")
    ask(explorer, "run")
    assert ran(explorer) == {"error": "Nothing is drawn yet: place an action on the grid."}
    assert explorer.doing == ""


@pytest.mark.parametrize(
    ("reported", "words"),
    [
        (
            (None, 0, 0, True),
            "Loading PyTorch for this kernel's first run, then starting the ranks …",
        ),
        ((None, 0, 4, False), "Starting the ranks …"),
        ((None, 3, 4, False), "Starting the ranks: 3 of 4 have started …"),
        (("step", 0, 2, False), "Running on real ranks, paced: step 1 of 2 …"),
        (("step", 2, 2, True), "Running on real ranks, paced: step 2 of 2 …"),
    ],
)
def test_a_run_says_in_words_what_it_does(reported, words):
    assert doing_words(*reported) == words


@pytest.mark.slow
@pytest.mark.parametrize("Explorer", [CollectiveExplorer, ScheduleExplorer])
def test_no_rank_is_left_a_moment_after_a_stop_and_the_next_run_measures(Explorer):
    explorer = Explorer(ranks=2)
    ask(explorer, "run")
    until(lambda: "1 of" in explorer.doing or "share" in explorer.doing)
    explorer.stop()
    explorer.run()  # takes its turn once the first is gone; the check for leftovers sees the rest
    assert explorer.measured is not None and "stopped" not in ran(explorer)

"""What a widget answers the requests of its front ends, each by its number."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future

import pytest
from kernel import ask

from dlviz.widgets import CollectiveExplorer, ScalingExplorer, ScheduleExplorer, ScheduleLevels


def state(explorer):
    return json.loads(explorer.state)


def test_a_change_is_shown_before_it_is_answered_and_sent_as_one_message(monkeypatch):
    explorer = ScheduleExplorer("1f1b")
    sent = []
    monkeypatch.setattr(explorer, "_send", lambda message, buffers=None: sent.append(message))
    hear(explorer, "change", values={"ranks": 3, "microbatches": 5})
    update, answer = sent
    assert update["method"] == "update" and answer["method"] == "custom"
    assert (update["state"]["ranks"], update["state"]["microbatches"]) == (3, 5)
    assert json.loads(update["state"]["state"])["sides"][0]["ranks"] == 3
    assert answer["content"] == {"id": "c-1"}


@pytest.mark.parametrize("Explorer", [CollectiveExplorer, ScalingExplorer, ScheduleExplorer])
def test_an_invalid_change_is_answered_with_its_sentence_and_one_to_the_same_too(Explorer):
    explorer = Explorer()
    assert ask(explorer, "change", values={"ranks": 4}) == {}
    refused = ask(explorer, "change", values={"ranks": "many"})
    assert refused == {"error": state(explorer)["error"]} and "'many'" in refused["error"]
    assert state(explorer)["controls"]["ranks"] == 4
    assert ask(explorer, "change", values={"ranks": 4}) == {}
    assert ask(explorer, "change", values={"ranks": 4}) == {}
    assert state(explorer)["error"] == ""


def test_a_level_that_is_not_offered_is_refused():
    levels = ScheduleLevels([1, 2])
    assert ask(levels, "change", values={"level": 2}) == {}
    answer = ask(levels, "change", values={"level": 3})
    assert answer == {"error": "level=3 is not offered: use one of 1, 2."}
    assert levels.level == state(levels)["level"] == 2


def test_a_request_that_nobody_answers_or_that_fails_is_answered_all_the_same(monkeypatch):
    explorer = ScalingExplorer()
    failed = {"error": "The kernel failed: its log says why."}
    assert ask(explorer, "dance") == failed

    def fail():
        raise RuntimeError

    monkeypatch.setattr(explorer, "payload", fail)
    assert ask(explorer, "change", values={"ranks": 4}) == failed


def test_what_takes_longer_is_answered_once_it_is_known_and_what_is_dropped_with_nothing():
    explorer = CollectiveExplorer()
    for end, shown in (("set_result", {"ahead": 1}), ("cancel", None)):
        explorer._ahead = Future()
        sent = []
        explorer.send = sent.append
        hear(explorer, "ahead")
        assert sent == []
        getattr(explorer._ahead, end)(*([shown] if shown else []))
        assert sent == [{"id": "c-1", **(shown or {})}]


def test_requests_of_two_threads_take_turns():
    explorer = ScheduleExplorer()
    begun, may_end, ended = threading.Event(), threading.Event(), []

    def slow(change):
        begun.set()
        assert may_end.wait(20)
        ended.append("change")

    explorer.observe(slow, "ranks")
    one = threading.Thread(target=lambda: hear(explorer, "change", values={"ranks": 5}))
    one.start()
    assert begun.wait(20)
    other = threading.Thread(target=lambda: hear(explorer, "settle"))
    other.start()
    other.join(0.1)
    assert other.is_alive() and ended == []
    may_end.set()
    one.join(20)
    other.join(20)
    assert ended == ["change"] and state(explorer)["settled"]


def hear(widget, kind, **fields):
    data = {"method": "custom", "content": {"id": "c-1", "kind": kind, **fields}}
    widget._handle_msg({"content": {"data": data}, "buffers": []})

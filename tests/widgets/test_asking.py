"""What a front end asks of its kernel, and how it learns that the kernel is gone."""

from __future__ import annotations

import node
import pytest
from kernel import MODEL

QUEUE = """
const told = { gone: 0, answered: 0 };
const queue = m.asking(model, {
  sent() {}, answered: () => (told.answered += 1), gone: () => (told.gone += 1),
});
"""


def asked(code):
    return node.run("shared/rpc.js", MODEL + QUEUE + code)


def change(**values):
    return {"kind": "change", "values": values}


RUN, STOP = {"kind": "run"}, {"kind": "stop"}


def test_changes_go_one_at_a_time_the_newest_of_each_and_a_run_behind_them():
    code = """
    queue.change({ ranks: 5 }); queue.change({ ranks: 6 }); queue.change({ size: 2 });
    queue.change({ ranks: 7 }); queue.run();
    const seen = [asked(), queue.pending(), queue.running()];
    answer(); seen.push(asked()); queue.change({ size: 3 });
    answer(); answer(); seen.push(asked(), queue.settled());
    answer(); return [...seen, queue.settled(), queue.running(), told.answered];"""
    first, pending, running, second, third, *rest = asked(code)
    assert first == [change(ranks=5)] and pending == {"ranks": 7, "size": 2} and running
    assert second == [change(ranks=5), change(ranks=7, size=2)]
    assert third == [*second, change(size=3), RUN]
    assert rest == [False, True, False, 4]


def test_every_request_has_a_number_and_a_view_takes_its_own_answers_alone():
    code = """
    const other = m.requests(model);
    const heard = [];
    const [one, two] = ["one", "two"].map((name) => (found) => heard.push([name, found.told]));
    const own = m.requests(model);
    own.send("look", { at: 1 }, one);
    other.send("look", {}, two);
    const ids = sent.map(({ id }) => id);
    fire("msg:custom", { id: ids[1], told: 2 });
    fire("msg:custom", { id: ids[1], told: 3 });
    fire("msg:custom", { id: "another view's", told: 4 });
    fire("msg:custom", { id: ids[0], told: 5 });
    own.send("look", {}, one); own.close(); answer(); answer(); answer({ told: 6 });
    return [heard, asked(), new Set(sent.map(({ id }) => id)).size];"""
    heard, requests, numbers = asked(code)
    assert heard == [["two", 2], ["one", 5]]
    assert requests == [{"kind": "look", "at": 1}, {"kind": "look"}, {"kind": "look"}]
    assert numbers == 3


def test_of_what_is_asked_for_one_at_a_time_the_newest_goes_next_and_an_old_answer_is_dropped():
    code = """
    const heard = [];
    const look = (at) => queue.latest("ahead", { at }, (found) => heard.push(found.told));
    look(1); look(2); look(3);
    queue.latest("settle", {}, () => heard.push("settled"));
    const seen = [asked()];
    answer({ told: 1 }); answer(); answer({ told: 3 }); look(4); answer({ told: 4 });
    return [...seen, asked(), heard];"""
    first, requests, heard = asked(code)
    assert first == [{"kind": "ahead", "at": 1}, {"kind": "settle"}]
    assert requests == [*first, {"kind": "ahead", "at": 3}, {"kind": "ahead", "at": 4}]
    assert heard == ["settled", 3, 4]


def test_what_was_asked_for_is_pending_until_its_own_answer():
    """Else a control would fall back to what the answer before it says, and a change to that be
    lost."""
    code = """
    queue.change({ a: 2 }); queue.change({ a: 3 });
    const seen = [queue.pending()]; answer(); seen.push(queue.pending());
    queue.change({ b: 7 }); seen.push(queue.pending());
    answer(); seen.push(queue.pending()); answer();
    return [...seen, queue.pending()];"""
    assert asked(code) == [{"a": 3}, {"a": 3}, {"a": 3, "b": 7}, {"b": 7}, {}]


def test_a_run_behind_a_change_that_was_refused_is_dropped_unless_it_was_mended():
    code = """
    queue.change({ ranks: "x" }); queue.run(); answer({ error: "no" });
    const seen = [asked(), queue.running(), queue.settled()];
    queue.change({ ranks: "y" }); queue.run(); queue.change({ ranks: 4 });
    answer({ error: "no" }); answer();
    return [...seen, asked().slice(1)];"""
    refused, *quiet, mended = asked(code)
    assert refused == [change(ranks="x")] and quiet == [False, True]
    assert mended == [change(ranks="y"), change(ranks=4), RUN]


def test_a_run_is_in_progress_from_the_click_until_the_kernel_has_sent_its_end():
    code = """
    queue.run(); const seen = [queue.running()];
    traits.doing = "{}"; answer(); seen.push(queue.running(), queue.settled());
    queue.change({ size: 2 }); answer(); seen.push(queue.running());
    traits.doing = ""; seen.push(queue.running());
    return seen;"""
    assert asked(code) == [True, True, True, True, False]


def test_stop_is_sent_immediately_whatever_is_waited_for():
    code = """queue.change({ ranks: 5 }); queue.run(); queue.stop();
    return [asked(), queue.running()];"""
    assert asked(code) == [[change(ranks=5), STOP], False]


@pytest.mark.parametrize(
    "event",
    [
        *(f'kernel.statusChanged.emit("{status}")' for status in ("restarting", "dead")),
        'kernel.statusChanged.emit("autorestarting")',
        "kernel.disposed.emit()",
        'fire("comm_live_update")',
        'fire("comm:close")',
    ],
)
def test_a_kernel_that_is_gone_is_reported_once_and_ends_the_run(event):
    code = f"""
    traits.doing = "{{}}"; const before = queue.running();
    {event}; {event};
    return [before, told.gone, queue.running()];"""
    assert asked(code) == [True, 1, False]


def test_a_busy_kernel_is_not_gone_and_a_closed_queue_listens_no_longer():
    code = """
    for (const status of ["busy", "idle", "starting", "unknown"]) kernel.statusChanged.emit(status);
    const before = told.gone;
    queue.close(); kernel.disposed.emit(); fire("comm_live_update");
    return [before, told.gone, kernel.statusChanged.calls.size, events.get("msg:custom").size];"""
    assert asked(code) == [0, 0, 0, 0]

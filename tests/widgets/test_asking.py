"""What a front end asks of its kernel, and how it learns that the kernel is gone."""

from __future__ import annotations

import node
import pytest

KERNEL = """
const signal = () => {
  const calls = new Set();
  return { connect: (call) => calls.add(call), disconnect: (call) => calls.delete(call),
    emit: (...told) => [...calls].forEach((call) => call(null, ...told)), calls };
};
const kernel = { statusChanged: signal(), disposed: signal() };
const traits = { ranks: 4, size: 1, runs: 0, stops: 0, doing: "" };
const sent = [];
const events = new Map();
const model = {
  widget_manager: { kernel },
  get: (name) => traits[name],
  set: (name, value) => { traits[name] = value; sent.push([name, value]); },
  save_changes: () => {},
  on: (name, call) => events.set(name, (events.get(name) ?? new Set()).add(call)),
  off: (name, call) => events.get(name)?.delete(call),
};
const fire = (name) => [...events.get(name) ?? []].forEach((call) => call());
const told = { answer: 0, failed: false, gone: 0 };
const queue = m.asking(model, {
  answer: () => told.answer, failed: () => told.failed, gone: () => (told.gone += 1),
});
const answer = (failed = false) => { told.answer += 1; told.failed = failed; queue.answered(); };
"""


def asked(code):
    return node.run("shared/rpc.js", KERNEL + code)


def test_changes_go_one_at_a_time_the_newest_of_each_and_a_run_behind_them():
    code = """
    queue.change("ranks", 5); queue.change("ranks", 6); queue.change("ranks", 7); queue.run();
    const seen = [[...sent], queue.pending(), queue.running()];
    answer(); seen.push([...sent]);
    answer(); seen.push([...sent], queue.settled());
    return seen;"""
    first, pending, running, second, third, settled = asked(code)
    assert first == [["ranks", 5]] and pending == {"ranks": 7} and running
    assert second == [["ranks", 5], ["ranks", 7]]
    assert third == [["ranks", 5], ["ranks", 7], ["runs", 1]] and not settled


def test_a_run_behind_a_change_that_was_refused_is_dropped():
    code = 'queue.change("ranks", "x"); queue.run(); answer(true); return [sent, queue.running()];'
    assert asked(code) == [[["ranks", "x"]], False]


def test_a_run_is_under_way_from_the_click_until_the_kernel_has_told_its_end():
    code = """
    queue.run(); const seen = [queue.running()];
    traits.doing = "{}"; answer(); seen.push(queue.running(), queue.settled());
    queue.change("size", 2); answer(); seen.push(queue.running());
    traits.doing = ""; seen.push(queue.running());
    return seen;"""
    assert asked(code) == [True, True, True, True, False]


def test_stop_is_sent_at_once_whatever_is_waited_for():
    code = 'queue.change("ranks", 5); queue.run(); queue.stop(); return [sent, queue.running()];'
    assert asked(code) == [[["ranks", 5], ["stops", 1]], False]


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
def test_a_kernel_that_is_gone_is_told_once_and_ends_the_run(event):
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
    return [before, told.gone, kernel.statusChanged.calls.size];"""
    assert asked(code) == [0, 0, 0]

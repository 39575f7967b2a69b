"""Which thread of a rank wakes which; no processes."""

import threading
from queue import SimpleQueue

import pytest

from dlviz.cluster.control import waiting as waits
from dlviz.cluster.control.board import Board
from dlviz.cluster.control.matching import Matching
from dlviz.cluster.control.pipes import Pipes
from dlviz.cluster.control.waiting import Waiting


class Something:
    """To wait for."""

    left = None
    done = False


class Late(Something):
    """A matched receive. Its message is taken slowly: not before the thread that waits for it is
    `asleep`."""

    awaited = False

    def __init__(self, asleep):
        self.taking, self._asleep = threading.Event(), asleep

    def take(self):
        self.taking.set()
        assert self._asleep.wait(20)
        self.done = True


def looks_before_it_sleeps(waiting, event):
    waiting.wake = 10**11  # ns: it looks for as long
    waiting.wait_for_others(event, "barrier", None)


def reads_the_pipe(waiting, event):
    waiting.wake = 0
    waiting.wait(event, "barrier", None)


def is_asked_by_the_parent(waiting, event):
    waiting.serve()


@pytest.mark.parametrize("take", [looks_before_it_sleeps, reads_the_pipe, is_asked_by_the_parent])
def test_whoever_takes_a_message_wakes_the_thread_that_waits_for_it(tmp_path, monkeypatch, take):
    asleep, event = threading.Event(), Something()

    class Queue(SimpleQueue):
        def get(self, *args, **options):
            asleep.set()
            return super().get(*args, **options)

    def sleep(seconds):
        asleep.set()
        slept(seconds)

    pipes = Pipes(str(tmp_path), 0, 1)
    matching = Matching(0, pipes.writer, None)
    waiting = Waiting(0, Board(str(tmp_path / "board"), 1, create=True), pipes, matching)
    slept = pipes.sleep
    monkeypatch.setattr(pipes, "sleep", sleep)
    monkeypatch.setattr(waits, "SimpleQueue", Queue)
    receive = Late(asleep)
    matching.late.add(receive)

    taker = threading.Thread(target=take, args=(waiting, event), daemon=True)
    taker.start()
    assert receive.taking.wait(20)
    waiting.wake = 0
    waiter = threading.Thread(target=waiting.wait, args=(receive, "irecv", None), daemon=True)
    waiter.start()
    waiter.join(5)
    woken = not waiter.is_alive()
    event.done = True
    waiting.ring(0)
    for thread in (waiter, taker):
        thread.join(20)
    pipes.close()
    assert woken

"""Who can go on, told from what the ranks post; no processes."""

from __future__ import annotations

import linecache
from dataclasses import replace

import pytest

from dlviz.cluster.control.board import ACTIVITY, WAITING, Board
from dlviz.cluster.stuck import watch
from dlviz.cluster.stuck.waits import (
    RankState,
    Wait,
    answered,
    deadlocked,
    find_cycle,
    in_vain,
    show_line,
)  # fmt: skip
from dlviz.cluster.stuck.watch import PATIENCE, PAUSE, TICK, Watchdog

WORLD = 1


def recv(rank: int, peer: int | None, index: int = 0, **more: object) -> Wait:
    others = () if peer is not None else tuple(r for r in range(4) if r != rank)
    return Wait(rank, "compute", "recv", "a.py:1", 0, peer, index=index, members=others, **more)


def send(rank: int, peer: int, index: int = 0) -> Wait:
    return Wait(rank, "compute", "send", "a.py:1", 0, peer, index=index)


def collective(rank: int, sequence: int, *members: int) -> Wait:
    return Wait(
        rank, "compute", "barrier", "a.py:1", 0, group_id=WORLD, members=members, sequence=sequence
    )


def stuck(*waits: Wait, **counts: dict) -> RankState:
    return RankState(list(waits), **counts)


FINISHED = RankState(finished=True)


def test_two_ranks_that_receive_from_each_other_are_a_cycle():
    states = {0: stuck(recv(0, 1)), 1: stuck(recv(1, 0))}
    assert deadlocked(states) == [0, 1]
    assert find_cycle([0, 1], states) == [0, 1]


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_a_ring_of_sends_is_a_cycle_through_all_of_it(ranks):
    states = {r: stuck(send(r, (r + 1) % ranks)) for r in range(ranks)}
    assert deadlocked(states) == list(range(ranks))
    assert find_cycle(deadlocked(states), states) == list(range(ranks))


def test_a_chain_that_ends_at_a_finished_rank_is_a_deadlock_without_a_cycle():
    states = {0: stuck(recv(0, 1)), 1: stuck(recv(1, 2)), 2: FINISHED}
    assert deadlocked(states) == [0, 1]
    assert find_cycle([0, 1], states) is None


def test_who_waits_for_a_rank_that_has_met_a_loss_waits_in_vain_and_who_has_met_it_knows():
    gone = RankState(finished=True, met={7})
    states = {0: stuck(recv(0, 2)), 1: stuck(recv(1, 0)), 2: gone}
    assert in_vain(states) == {0: 7, 1: 7}
    states |= {4: stuck(recv(4, 5)), 5: stuck(recv(5, 4))}  # a deadlock of their own
    assert in_vain(states) == {0: 7, 1: 7}
    states[0].met = {7}
    assert in_vain(states) == {1: 7}
    states[2] = RankState(finished=True, met={7, 6})  # of another loss it has not heard
    assert in_vain(states) == {0: 6, 1: 6}
    states[2] = RankState(busy_threads=1, met={7})  # it may yet send
    assert in_vain(states) == {}


def test_a_chain_that_ends_at_a_computing_rank_is_none():
    assert deadlocked({0: stuck(recv(0, 1)), 1: stuck(recv(1, 2))}) == []
    computing = RankState(busy_threads=1)
    assert deadlocked({0: stuck(recv(0, 1)), 1: stuck(recv(1, 2)), 2: computing}) == []


def test_a_cycle_is_found_while_another_rank_computes():
    states = {0: stuck(recv(0, 1)), 1: stuck(recv(1, 0)), 3: stuck(recv(3, 2))}
    assert deadlocked(states) == [0, 1]
    states[3] = stuck(recv(3, 0))  # and so is whoever waits for those
    assert deadlocked(states) == [0, 1, 3]
    assert find_cycle([0, 1, 3], states) == [0, 1]


def test_a_rank_with_a_thread_at_work_is_never_stuck():
    states = {0: RankState([recv(0, 1)], busy_threads=1), 1: stuck(recv(1, 0))}
    assert deadlocked(states) == []


def test_a_rank_is_stuck_only_if_all_its_threads_are():
    both = stuck(recv(0, 1), recv(0, 2))
    assert deadlocked({0: both, 1: stuck(recv(1, 0))}) == []  # rank 2 may still send
    assert deadlocked({0: both, 1: stuck(recv(1, 0)), 2: FINISHED}) == [0, 1]


def test_a_message_that_was_sent_is_an_answer_and_the_one_before_it_is_not():
    sender = RankState(finished=True, sent={(0, 0): 3})
    assert answered(recv(0, 1, index=2), {0: RankState(), 1: sender})
    assert not answered(recv(0, 1, index=3), {0: RankState(), 1: sender})
    assert deadlocked({0: stuck(recv(0, 1, index=2)), 1: sender}) == []
    assert deadlocked({0: stuck(recv(0, 1, index=3)), 1: sender}) == [0]


def test_a_message_with_another_tag_or_of_another_group_is_no_answer():
    sender = RankState(finished=True, sent={(0, recv(0, 1, tag=5, group_id=2).key): 1})
    assert answered(recv(0, 1, tag=5, group_id=2), {0: RankState(), 1: sender})
    assert not answered(recv(0, 1, tag=4, group_id=2), {0: RankState(), 1: sender})
    assert not answered(recv(0, 1, tag=5, group_id=1), {0: RankState(), 1: sender})


def test_a_send_is_answered_by_the_receive_that_takes_it():
    assert answered(send(0, 1, index=1), {0: RankState(), 1: RankState(claimed={(0, 0): 2})})
    assert not answered(send(0, 1, index=2), {0: RankState(), 1: RankState(claimed={(0, 0): 2})})


def test_a_receive_from_any_rank_is_answered_by_a_message_not_claimed_yet():
    receiver = stuck(recv(0, None), claimed={(2, 0): 1})
    taken = RankState(finished=True, sent={(0, 0): 1})
    fresh = RankState(finished=True, sent={(0, 0): 2})
    assert deadlocked({0: receiver, 1: FINISHED, 2: taken, 3: FINISHED}) == [0]
    assert deadlocked({0: receiver, 1: FINISHED, 2: fresh, 3: FINISHED}) == []
    assert deadlocked({0: receiver, 1: FINISHED, 2: taken}) == []  # rank 3 may send


def test_a_collective_waits_for_the_members_that_have_not_entered_it():
    inside = {"calls": {WORLD: 1}}
    wait = {r: collective(r, 0, 0, 1, 2) for r in range(3)}
    entered = {r: stuck(wait[r], **inside) for r in range(3)}
    assert deadlocked(entered) == []  # all are there: it is about to end
    assert deadlocked({**entered, 2: FINISHED}) == [0, 1]
    assert deadlocked({0: entered[0], 1: entered[1]}) == []
    crossed = {**entered, 2: stuck(recv(2, 0))}
    assert deadlocked(crossed) == [0, 1, 2]
    assert find_cycle([0, 1, 2], crossed) == [0, 2]


def test_a_wait_for_ones_own_lane_is_stuck_where_the_lane_is():
    own = Wait(0, "compute", "lane", "a.py:1", 0)
    assert deadlocked({0: stuck(own), 1: FINISHED}) == []  # the lane is done: it is about to end
    assert deadlocked({0: stuck(own, recv(0, 1)), 1: FINISHED}) == [0]


def test_nobody_is_stuck_where_nobody_waits():
    assert deadlocked({}) == []
    assert deadlocked({0: FINISHED, 1: FINISHED}) == []


def test_a_wait_misses_its_peer_and_those_that_it_does_something_together_with():
    in_a_ring = recv(3, 5, group="tp (3, 4, 5)", group_id=7)
    members = {"members": (3, 4, 5)}
    for wait, missed in (
        (recv(0, 1), [1]),
        (replace(recv(0, 1), members=(0, 1, 2)), [1]),  # others of the world may be elsewhere
        (replace(in_a_ring, **members), [3, 4, 5]),
        (collective(1, 4, 0, 1), [0, 1]),
    ):
        assert [rank for rank in range(7) if wait.misses(rank)] == missed


@pytest.mark.parametrize(
    "wait, words",
    [
        (
            recv(2, 0, index=7, tag=3, group_id=1, shape=(4, 2), dtype="float32"),
            "rank 2 waits in recv from rank 0 (message 7, tag 3, shape (4, 2) float32)",
        ),
        (recv(2, None), "rank 2 waits in recv from any rank"),
        (
            recv(2, 6, index=1, group="pp (2, 6)", shape=(3,), dtype="float64"),
            "rank 2 waits in recv from rank 6 (message 1, group pp (2, 6), shape (3,) float64)",
        ),
        (
            Wait(0, "comm", "irecv", "a.py:1", 0, peer=4, group="dp (0, 4).comm"),
            "rank 0 (lane comm) waits in irecv from rank 4 (message 0, group dp (0, 4).comm)",
        ),
        (
            Wait(0, "comm", "irecv", "a.py:1", 0, peer=4, group="world.comm"),
            "rank 0 (lane comm) waits in irecv from rank 4 (message 0)",
        ),
        (
            Wait(0, "compute", "recv", "a.py:1", 0, members=(3, 1), listed=True, tag=4),
            "rank 0 waits in recv from rank 3 or 1 (tag 4)",
        ),
        (
            Wait(0, "compute", "recv", "a.py:1", 0, members=(2,), listed=True),
            "rank 0 waits in recv from rank 2",
        ),
        (send(0, 1), "rank 0 waits in send to rank 1 (message 0)"),
        (collective(1, 4, 0, 1), "rank 1 waits in barrier (call 4 of group world)"),
        (
            Wait(1, "comm", "isend", "a.py:1", 0, peer=0),
            "rank 1 (lane comm) waits in isend to rank 0 (message 0)",
        ),
    ],
)
def test_a_wait_says_what_it_is(wait, words):
    assert wait.describe() == words


def test_a_line_of_a_cell_is_shown_as_such_and_one_of_a_file_with_its_name(tmp_path):
    cell = "/tmp/ipykernel_7/123.py"
    linecache.cache[cell] = (20, None, ["a = 1\n", "  comm.recv(a)\n"], cell)
    try:
        assert show_line(f"{cell}:2") == "cell line 2: comm.recv(a)"
    finally:
        del linecache.cache[cell]
    file = tmp_path / "worker.py"
    file.write_text("x = 1\n")
    assert show_line(f"{file}:1") == f"{file}:1: x = 1"
    file.write_text("x = 1  # edited\n")
    assert show_line(f"{file}:1") == f"{file}:1: x = 1  # edited"
    assert show_line("nowhere.py:3") == "nowhere.py:3"


# -- Watchdog --------------------------------------------------------------------------------------
class Rank:
    """A rank as `Watchdog` sees it: it answers at once, where it answers at all."""

    def __init__(self, number: int, answer: RankState | None, answers: bool = True):
        self.number = number
        self.answer = answer
        self.answers = answers
        self.finished = answer is not None and answer.finished
        self.state = answer if self.finished else None
        self.asked = 0

    def ask(self, question: str) -> None:
        assert question == "state"
        self.asked += 1
        self.state = self.answer if self.answers else None

    @property
    def pending(self) -> bool:
        return self.asked > 0 and not self.answers

    owes_answer = pending.fget


class Run:
    """Two ranks that receive from each other, a board, and a clock that `look` moves on."""

    def __init__(self, tmp_path, monkeypatch, *ranks: Rank):
        self.ranks = list(ranks) or [Rank(0, stuck(recv(0, 1))), Rank(1, stuck(recv(1, 0)))]
        self.board = Board(str(tmp_path / "board"), len(self.ranks), create=True)
        for rank in self.ranks:
            self.board.put(rank.number, WAITING, int(not rank.finished))
        self.now = 100.0
        monkeypatch.setattr(watch, "perf_counter", lambda: self.now)
        self.watch = Watchdog(self.board, self.ranks)

    def look(self):
        self.now += TICK
        return self.watch.look()

    def looks_until_deadlock(self, most: int = 40) -> int:
        return next((count for count in range(1, most) if self.look() is not None), 0)

    def move(self, rank: int) -> None:
        self.board.put(rank, ACTIVITY, self.board.get(rank, ACTIVITY) + 1)


def test_a_deadlock_takes_two_looks_and_less_than_half_a_second(tmp_path, monkeypatch):
    run = Run(tmp_path, monkeypatch)
    assert 0 < run.looks_until_deadlock() * TICK < 0.5
    assert [rank.asked for rank in run.ranks] == [2, 2]


def test_ranks_that_move_between_two_looks_are_not_deadlocked(tmp_path, monkeypatch):
    run = Run(tmp_path, monkeypatch)
    for _ in range(20):
        for _ in range(3):  # as long as it takes to find them stuck once
            assert run.look() is None
        run.move(0)
    assert run.ranks[1].asked > 5


def test_a_rank_that_moves_or_does_not_wait_is_left_alone(tmp_path, monkeypatch):
    run = Run(tmp_path, monkeypatch)
    run.board.put(1, WAITING, 0)
    for _ in range(20):
        run.move(0)
        assert run.look() is None
    assert [rank.asked for rank in run.ranks] == [0, 0]


def test_what_moved_while_it_was_asked_is_not_believed(tmp_path, monkeypatch):
    run = Run(tmp_path, monkeypatch)
    for _ in range(40):
        asked = run.ranks[0].asked
        assert run.look() is None
        if run.ranks[0].asked > asked:
            run.move(0)


def test_a_rank_that_does_not_answer_holds_up_the_others_but_for_a_moment(tmp_path, monkeypatch):
    ranks = [Rank(0, stuck(recv(0, 1))), Rank(1, stuck(recv(1, 0))), Rank(2, None, answers=False)]
    run = Run(tmp_path, monkeypatch, *ranks)
    assert 0 < run.looks_until_deadlock() * TICK < PATIENCE + 0.5
    assert ranks[2].asked == 1


def test_ranks_that_wait_for_a_computing_one_are_asked_now_and_then(tmp_path, monkeypatch):
    ranks = [Rank(0, stuck(recv(0, 1))), Rank(1, None)]
    run = Run(tmp_path, monkeypatch, *ranks)
    run.board.put(1, WAITING, 0)
    assert run.looks_until_deadlock(100) == 0
    assert 3 < ranks[0].asked <= 100 * TICK / PAUSE


def test_a_rank_that_finished_counts(tmp_path, monkeypatch):
    run = Run(tmp_path, monkeypatch, Rank(0, stuck(recv(0, 1))), Rank(1, FINISHED))
    assert run.looks_until_deadlock() > 0
    assert run.ranks[1].asked == 0

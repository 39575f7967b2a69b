"""Ranks that a run may lose: it goes on, whoever meets them is told, and nobody hangs."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time

import out_of_time
import pytest
import torch

from dlviz import DeadlockError, RankError, RankLost, RunError, RunTimeout, launch
from dlviz.cluster.control.board import WAITING
from dlviz.cluster.control.matching import Channel
from dlviz.cluster.control.pipes import HEAD, LONGEST, Header, Inbox, loss
from dlviz.cluster.groups.survivors import Votes
from dlviz.cluster.messages.requests import ReceiveRequest
from dlviz.cluster.pacing.ledger import ENTRIES, Ledger, size
from dlviz.cluster.rank import ControlChannel
from dlviz.collectives import all_reduce
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.trace import Trace, TraceError

SHORT, LONG = 4, 1 << 20  # elements: a message that follows its header, and one that does not
KILLED = "was killed by signal 9"
ENDS = {
    "kill": (lambda: os.kill(os.getpid(), signal.SIGKILL), KILLED),
    "raise": (lambda: {}["gone"], "raised KeyError: 'gone'"),
    "exit": (lambda: sys.exit(3), "exited with code 3"),
    "_exit": (lambda: os._exit(0), "exited with code 0"),
}


@pytest.fixture(scope="module", autouse=True)
def warm():
    """The fork server has loaded torch, so that times are those of a run."""
    launch(lambda comm: None, 1)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def met(action):
    """The rank that an action finds lost, None where it ends well."""
    try:
        action()
    except RankLost as error:
        return error.rank
    return None


def survived(worker, ranks=3, lost=(1,), timeout=20.0, **options):
    """The run, whose losses its trace states too, and after which there is nothing left."""
    run = launch(worker, ranks, timeout=timeout, may_lose=lost, **options)
    run.trace.validate()
    told = {int(rank): each for rank, each in run.trace.meta["lost"].items()}
    assert told == {rank: each._asdict() for rank, each in run.lost.items()}
    assert all(run.results[rank] is None for rank in run.lost)
    assert all(0 <= each.when <= run.seconds for each in run.lost.values())
    return run


# -- when, who and how ---------------------------------------------------------------------------
@pytest.mark.parametrize("end", ENDS)
def test_a_run_goes_on_without_a_rank_and_says_how_it_was_lost(end, tmp_path):
    def worker(comm):
        if comm.rank == 1:
            print("last words")
            with comm.span("phase", "alone"):
                time.sleep(0.05)
            ENDS[end][0]()
        return comm.rank

    run = survived(worker)
    assert run.results == [0, None, 2] and run.output == ["", "last words\n", ""]
    assert {rank: each.how for rank, each in run.lost.items()} == {1: ENDS[end][1]}
    assert 0.05 <= run.lost[1].when and "1 lost" in repr(run)
    told = end in ("raise", "exit")  # who is killed cannot say what it has recorded
    assert (run.trace.spans.rank == 1).any() == told
    run.trace.save(tmp_path / "trace.json")
    assert Trace.load(tmp_path / "trace.json").meta["lost"] == run.trace.meta["lost"]


def test_without_may_lose_and_for_other_ranks_a_death_is_a_rank_error():
    def worker(comm):
        if comm.rank == 1:
            die()
        comm.barrier()

    with pytest.raises(RankError, match="rank 1 was killed by SIGKILL"):
        launch(worker, 3, timeout=20)
    with pytest.raises(RankError, match="rank 1 was killed by SIGKILL") as caught:
        launch(worker, 3, timeout=20, may_lose=(2,))
    assert "lost" not in caught.value.trace.meta


def test_ranks_that_cannot_be_lost_are_refused():
    for may_lose, kind, message in (
        ((3,), ValueError, "may_lose names 3, which is no rank of this run: use 0 to 2"),
        ((-1,), ValueError, "may_lose names -1"),
        ((True,), ValueError, "may_lose names True"),
        (("1",), ValueError, "may_lose names '1'"),
        ((0, 1, 2), ValueError, r"names all 3 ranks: leave out at least one"),
        (1, TypeError, r"may_lose=1 is no tuple of ranks: write may_lose=\(1,\)"),
        ("12", TypeError, "may_lose='12' is no tuple"),
    ):
        with pytest.raises(kind, match=message):
            launch(lambda comm: None, 3, may_lose=may_lose)


def test_a_run_on_several_hosts_refuses_to_lose_ranks(monkeypatch):
    started = {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
    for name, value in started.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=r"may_lose=\(1,\) does not work on several hosts"):
        launch(lambda comm: None, 2, may_lose=(1,))


# -- the error -----------------------------------------------------------------------------------
def test_whoever_meets_a_lost_rank_gets_one_error_that_names_it_and_how():
    def worker(comm):
        x = torch.zeros(SHORT)
        row = comm.split(comm.rank % 2)
        lane = comm.lane("comm")
        if comm.rank == 1:
            die()
        if comm.rank == 0:
            posted = comm.irecv(x, 1, tag=7)  # before the loss
            with pytest.raises(RankLost) as caught:
                comm.recv(x, 1)
            assert str(caught.value) == f"rank 1 is lost: it {KILLED}."
            again = pickle.loads(pickle.dumps(caught.value))
            assert (again.rank, again.how) == (1, KILLED) and isinstance(again, RunError)
            return [
                met(posted.wait),
                met(lambda: comm.send(x, 1)),
                met(lambda: comm.isend(x, 1).wait()),
                met(lambda: comm.wait_sent([comm.isend(x, 1)])),
                met(lambda: comm.sendrecv(x, 1, x.clone(), 1)),
                met(lambda: comm.probe(1)),
                met(comm.barrier),
                met(lambda: comm.all_reduce(torch.ones(LONG))),
                met(lambda: comm.split(0)),
                met(lane.submit(lambda own: own.all_reduce(x)).wait),
                met(lambda: row.all_reduce(x)),  # ranks 0 and 2 alone
            ]
        if comm.rank == 2:
            found = [met(comm.barrier) for _ in range(3)]
            row.all_reduce(x)
            return found
        return met(lambda: row.barrier())

    run = survived(worker, 4)
    assert run.results == [[1] * 10 + [None], None, [1] * 3, 1]
    waits = run.trace.only(rank=0, kind="wait").spans
    assert (waits.peer == 1).sum() >= 6, "the time until the loss was known is on record"


def test_an_error_that_nobody_catches_is_the_failure_of_its_rank():
    def worker(comm):
        if comm.rank == 1:
            die()
        if comm.rank == 2:
            comm.recv(torch.zeros(1), 1)
        return met(lambda: comm.recv(torch.zeros(1), 2))

    run = survived(worker, lost=(1, 2))
    assert run.results == [2, None, None]
    assert run.lost[2].how == f"raised dlviz.cluster.errors.RankLost: rank 1 is lost: it {KILLED}."
    with pytest.raises(RankError, match="rank 2 raised .*RankLost: rank 1 is lost") as caught:
        launch(worker, 3, may_lose=(1,), timeout=20)
    assert caught.value.trace.meta["lost"]["1"]["how"] == KILLED
    assert "dlviz/cluster" not in caught.value.traceback


def test_what_a_lost_rank_had_sent_is_received_but_for_bytes_that_went_with_it():
    def worker(comm):
        if comm.rank == 1:
            for number in range(3):
                comm.isend(torch.full((SHORT,), 1.0 + number), 0)
            comm.isend(torch.ones(LONG), 0)
            comm.isend(torch.full((SHORT,), 9.0), 0)
            die()
        if comm.rank == 2:
            time.sleep(0.4)
            comm.send(torch.full((SHORT,), 5.0), 0)
            return None
        x, long, found = torch.zeros(SHORT), torch.zeros(LONG), []
        time.sleep(0.2)  # the loss is known before anything is received
        for _ in range(3):
            comm.recv(x, 1)
            found.append(x[0].item())
        found.append(met(lambda: comm.recv(long, 1)))
        comm.recv(x, 1)
        found += [x[0].item(), met(lambda: comm.recv(x, 1)), comm.recv(x), x[0].item()]
        return found

    run = survived(worker)
    assert run.results[0] == [1.0, 2.0, 3.0, 1, 9.0, 1, 2, 5.0]


def test_a_receive_from_any_source_goes_on_with_the_rest_until_nobody_is_left():
    def worker(comm):
        x = torch.zeros(LONG)
        if comm.rank == 1:
            comm.isend(torch.ones(LONG), 0)
            die()
        if comm.rank == 2:
            time.sleep(0.1)
            comm.send(torch.full((LONG,), 2.0), 0)
            time.sleep(0.1)
            raise ValueError("enough")
        if comm.rank == 0:
            time.sleep(0.02)  # it may begin with the message whose bytes are gone, or after
            source = comm.recv(x)
            if source == 1:  # it was quicker than the death
                source = comm.recv(x)
            return source, x[0].item(), met(lambda: comm.recv(x))
        return None

    assert survived(worker, 3, (1, 2)).results[0] == (2, 2.0, 2)


def test_a_receive_from_listed_ranks_takes_what_they_sent_and_ends_when_one_of_them_is_lost():
    def worker(comm):
        x = torch.zeros(SHORT)
        if comm.rank == 1:
            comm.isend(torch.ones(SHORT), 0)
            comm.recv(x, 0)
            die()
        if comm.rank == 2:
            comm.recv(x, 0)
            comm.send(torch.full((SHORT,), 2.0), 0)
        if comm.rank == 3:
            comm.isend(torch.full((SHORT,), 3.0), 0)
            comm.recv(x, 0)  # it says no more before rank 1 is lost
        if comm.rank:
            return None
        found = [comm.recv(x, [1, 2]), x[0].item()]  # not from rank 3, whether or not it has come
        comm.isend(x, 1)
        found.append(met(lambda: comm.recv(x, (2, 1))))
        for rank in (2, 3):
            comm.isend(x, rank)
        found += [comm.recv(x, {2}), x[0].item(), met(lambda: comm.recv(x, range(1, 3)))]
        for src, said in (((), "lists no rank"), ([0], "this rank itself"), ([4], "no rank of")):
            with pytest.raises(ValueError, match=said):
                comm.recv(x, src)
        return [*found, comm.recv(x, [3]), x[0].item()]

    assert survived(worker, 4).results[0] == [1, 1.0, 1, 2, 2.0, 1, 3, 3.0]


def test_a_rank_says_who_is_lost_by_the_numbers_of_its_communicator():
    def worker(comm):
        pair = comm.split(int(comm.rank == 0), key=-comm.rank)  # ranks 2 and 1
        if comm.rank == 1:
            die()
        met(lambda: comm.recv(torch.zeros(1), 1))
        return comm.lost, pair.lost

    assert survived(worker).results == [({1: KILLED}, {}), None, ({1: KILLED}, {1: KILLED})]


# -- together ------------------------------------------------------------------------------------
class Dying:
    """Cells of memory; the rank dies before it writes for the `at`th time."""

    def __init__(self, cells, at):
        self.cells, self.at = cells, at

    def __getitem__(self, place):
        return self.cells[place]

    def __setitem__(self, place, value):
        self.at -= 1
        if not self.at:
            die()
        self.cells[place] = value


@pytest.mark.parametrize("transport", ["memory", "gloo"])
def test_those_left_do_all_of_it_together_wherever_one_is_lost(transport, monkeypatch):
    """Rank 1 before, in the middle and at the end of what they do, and rank 0 at each of the cells
    that it writes when it votes and decides."""
    monkeypatch.setenv("DLVIZ_TRANSPORT", transport)

    def worker(comm, lost, at):
        comm.votes = Votes(comm)
        mine = at if comm.rank == lost else None
        if isinstance(mine, int):
            comm.votes._cells = Dying(comm.votes._cells, mine)
        if mine == "before":
            die()

        def act(left):
            first, second = torch.ones(SHORT), torch.full((LONG,), 1.0 + comm.rank)
            left.all_reduce(first)
            if mine == "middle":
                die()
            left.all_reduce(second)
            if mine == "end":
                die()
            return left.members, first[0].item(), second[0].item()

        return comm.together(act), comm.together(lambda left: left.members)

    points = [(1, "before"), (1, "middle"), (1, "end")]
    if transport == "memory":  # 3 cells of a vote, 6 of the first decision, as many of the second
        points += [(0, at) for at in (3, 5, 9, 12, 18)]
    for lost, at in points:
        run = survived(worker, 3, (lost,), args=(lost, at))
        left = tuple({0, 1, 2} - {lost})
        expected = {((left, 2.0, sum(left) + 2.0), left)}
        if at in ("end", 12, 18):  # all were through, if gloo had done its part for the others
            expected = {(((0, 1, 2), 3.0, 6.0), left), *(expected if transport == "gloo" else ())}
        assert run.results[lost] is None
        assert {result for result in run.results if result} <= expected, at
        assert len(set(run.results)) == 2, "those left have the same"


def test_who_was_through_begins_again_with_who_was_not():
    def worker(comm):
        sizes = []

        def act(left):
            sizes.append(left.size)
            if comm.rank == 1:
                die()
            if comm.rank == 2 and left.size == 3:
                left.recv(torch.zeros(1), 1)
            return left.size

        return comm.together(act), sizes

    assert survived(worker).results == [(2, [3, 2]), None, (2, [3, 2])]


def test_a_rank_that_dies_while_gloo_connects_the_ranks_is_lost_at_once(monkeypatch):
    monkeypatch.setenv("DLVIZ_TRANSPORT", "gloo")

    def worker(comm):
        if comm.rank == 1:
            comm.process.groups.connect = lambda name, members: die()
        lost = met(lambda: comm.all_reduce(torch.ones(SHORT)))
        total = torch.ones(SHORT)
        comm.together(lambda left: left.all_reduce(total))
        return lost, total[0].item()

    assert survived(worker, 4).results == [(1, 3.0), None, (1, 3.0), (1, 3.0)]


def test_nothing_is_asked_before_what_ranks_do_together_where_none_may_be_lost():
    def worker(comm):
        return comm.together(lambda left: left is comm)

    run = launch(worker, 2)
    assert run.results == [True, True] and not len(run.trace.spans)


def test_what_needs_a_rank_that_is_lost_ends_with_that_and_other_errors_pass():
    def worker(comm):
        if comm.rank == 1:
            die()

        def fail(left):
            raise KeyError(left.size)

        with pytest.raises(KeyError, match="2"):
            comm.together(fail, needed=[0])
        return met(lambda: comm.together(lambda left: left.barrier(), needed=[0, 1]))

    assert survived(worker).results == [1, None, 1]


def test_who_waits_for_a_rank_that_does_not_vote_is_in_a_deadlock():
    def worker(comm):
        if comm.rank == 1:
            die()
        if comm.rank == 2:
            comm.together(lambda left: None)

    with pytest.raises(
        DeadlockError, match="rank 2 waits in collective .* of those left"
    ) as caught:
        launch(worker, 3, may_lose=(1,), timeout=30)
    assert "(ranks 0 and 1 not in it)" in str(caught.value)


@pytest.mark.filterwarnings("ignore:the run was up to")
def test_on_a_paced_run_those_left_go_on_when_the_loss_is_known():
    def worker(comm):
        if comm.rank == 1:
            time.sleep(0.3)
            die()

        def act(left):
            left.barrier()

        comm.together(act)

    run = survived(worker, machine=classroom(3))
    starts = run.trace.only(kind="collective").spans.start
    assert len(starts) == 2 and (starts >= run.lost[1].when).all()


def test_a_wait_of_any_kind_that_has_begun_ends_with_the_loss():
    def worker(comm):
        x, pair = torch.zeros(LONG), comm.split(int(comm.rank in (1, 5)))
        lane, begun = comm.lane("comm"), comm.shared(torch.zeros(8)).tensor
        waits = {
            0: lambda: comm.recv(x, 1),
            2: lambda: comm.send(x, 1),
            3: lambda: comm.wait_sent([comm.isend(x, 1)]),
            4: lambda: comm.probe(1),
            5: lambda: pair.recv(x),  # from any rank of two
            6: lambda: lane.submit(lambda own: own.recv(x, 1)).wait(),
            7: lambda: [comm.isend(x[:900], 1) for _ in range(10_000)],  # until its pipe is full
        }
        begun[comm.rank] = 1
        if comm.rank == 1:
            board = comm.process.board
            while not begun.all() or not all(board.get(each, WAITING) for each in waits):
                time.sleep(0.005)
            die()
        return met(waits[comm.rank])

    run = survived(worker, 8)
    assert run.results == [1, None, *[1] * 6]


def test_a_rank_may_be_lost_when_its_worker_has_returned_and_its_result_with_it():
    def worker(comm):
        if comm.rank == 1:
            send = ControlChannel.send

            def send_and_die(self, *message):
                send(self, *message)
                if message[0] == "done":
                    die()

            ControlChannel.send = send_and_die
            with comm.span("phase", "alone"):
                pass
            return torch.ones(LONG)  # left in its memory
        return met(lambda: comm.recv(torch.zeros(1), 1))

    run = survived(worker, 2)
    assert run.results == [1, None] and run.lost[1].how == KILLED
    assert (run.trace.spans.rank == 1).any(), "it had told what it recorded"


# -- in the middle of things ---------------------------------------------------------------------
@pytest.mark.parametrize("transport", ["memory", "files", "gloo"])
def test_nobody_hangs_in_a_collective_in_which_a_rank_is_lost(transport, monkeypatch):
    """Every operation, a short and a long tensor, and the rank dies at another moment of it."""
    monkeypatch.setenv("DLVIZ_TRANSPORT", transport)

    def worker(comm, delay):
        comm.all_reduce(torch.ones(SHORT))  # gloo connects the ranks
        comm.barrier()
        if comm.rank == 1:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, delay)
        found = None
        while found is None:
            for count in (SHORT, LONG):
                found = met(lambda count=count: comm.all_reduce(torch.ones(count)))
                if found is not None:
                    break
        return found, met(comm.barrier)

    ranks = 3 if transport == "memory" else 6  # gloo's ring: some have no link to the lost one
    for delay in (0.05, 0.057, 0.071):
        run = survived(worker, ranks, args=(delay,))
        assert run.results == [None if rank == 1 else (1, 1) for rank in range(ranks)]
        assert run.lost[1].how == "was killed by signal 14"


@pytest.mark.filterwarnings("ignore:the run was up to")
@pytest.mark.parametrize("machine", [None, "paced", "racks"])
def test_a_ring_that_loses_a_rank_in_the_middle_ends_on_every_rank(machine):
    """Its neighbours are told that it is lost, and theirs that they have failed of that."""

    def worker(comm):
        ring = comm.split(int(comm.rank > 0))
        if comm.rank == 0:
            return met(lambda: comm.recv(torch.zeros(1)))  # until nobody is left
        if comm.rank == 2:
            ring.send(torch.ones(SHORT), 2)
            die()
        if comm.rank == 3:
            ring.recv(torch.zeros(SHORT), 1)
        all_reduce(ring, torch.ones(4000), "ring")

    ranks, link = (6 if machine == "racks" else 5), Link(1e-4, 1e9)
    racks = Machine(classroom(6).device, Topology.racks(2, 3, link, link))
    on = {None: None, "paced": classroom(5), "racks": racks}[machine]
    run = survived(worker, ranks, tuple(range(1, ranks)), machine=on)
    assert set(run.lost) == set(range(1, ranks)) and run.results[0] in run.lost
    assert run.lost[2].how == KILLED
    others = [run.lost[rank].how for rank in run.lost if rank != 2]
    assert all("RankLost" in how for how in others)


@pytest.mark.filterwarnings("ignore:the run was up to")
def test_on_a_paced_run_the_pace_goes_on_and_the_loss_ends_the_wait_when_it_happens():
    def worker(comm):
        x = torch.zeros(SHORT)
        with comm.compute("forward", seconds=0.05):
            pass
        if comm.rank == 1:
            comm.hold()
            time.sleep(0.1)
            die()
        lost = met(lambda: comm.recv(x, 1)) if comm.rank == 0 else None
        with comm.compute("backward", seconds=0.05):
            pass
        if comm.rank == 2:
            comm.send(x, 0)
            return None
        return lost, comm.recv(x)

    run = survived(worker, machine=classroom(3))
    assert run.results[0] == (1, 2)
    spans = run.trace.only(rank=0).spans
    wait, later = (spans[spans.kind == kind] for kind in ("wait", "backward"))
    assert wait.end[0] - wait.start[0] >= 0.09 and wait.end[0] >= run.lost[1].when
    assert later.start[0] >= wait.end[0] and later.end[0] - later.start[0] == pytest.approx(0.05)
    other = run.trace.only(rank=2, kind="backward").spans
    assert other.start[0] < wait.end[0], "who does not meet it does not wait"


def test_on_a_paced_run_who_raises_is_lost_when_its_device_has_come_so_far():
    def worker(comm):
        with comm.compute("forward", seconds=0.2 * comm.rank):
            pass
        if comm.rank:
            raise ValueError("enough")

    run = survived(worker, 2, machine=classroom(2))
    spans = run.trace.only(rank=1, kind="forward").spans
    assert spans.end[0] <= run.lost[1].when


def test_a_message_to_a_lost_rank_keeps_no_place_of_the_ledger():
    memory = bytearray(size(3, 1))
    with open(os.devnull) as file:
        path = Topology.racks(1, 3, Link(1e-6, 1e9), Link(1e-6, 1e9)).path
        ledger = Ledger.__new__(Ledger)
        Ledger.__init__(ledger, memory, 0, 3, 1, file, path)
        ledger._alone = lambda: __import__("contextlib").nullcontext()
        for _ in range(ENTRIES):
            ledger.enter(0, 1, 8, 0.0)
        assert ledger.full(0, {}) and ledger.full(0, {2: ""}) and not ledger.full(0, {1: ""})


def test_the_deadlock_verdict_counts_the_lost_as_gone():
    def worker(comm):
        if comm.rank == 1:
            die()
        if comm.rank == 2:
            return
        comm.recv(torch.zeros(1))  # from any rank: 1 is lost and 2 has finished

    began = time.perf_counter()
    with pytest.raises(DeadlockError, match="rank 2 finished and will send no more") as caught:
        launch(worker, 3, may_lose=(1,), timeout=30)
    assert time.perf_counter() - began < 10
    assert "no rank can go on" in str(caught.value) and "rank 1 was lost" in str(caught.value)
    sentence = caught.value.trace.meta["failure"]["message"]
    assert sentence == (
        "Deadlock: rank 0 waits for ever, because rank 2 has finished and rank 1 is lost."
    )


@pytest.mark.filterwarnings("ignore:rank . sent rank .:RuntimeWarning")  # they never take it
@pytest.mark.parametrize("machine", [None, "paced"])
@pytest.mark.parametrize("name", ["ring", "butterfly", "tree"])
def test_in_a_collective_made_of_messages_all_are_told_who_is_lost(name, machine):
    """Also those who wait for ranks that the loss has stopped, and no message for a lost one."""

    def worker(comm):
        if comm.rank == 1:
            die()
        return met(lambda: all_reduce(comm, torch.ones(4000), name))

    run = survived(worker, 5, machine=machine and classroom(5))
    assert run.results == [None if rank == 1 else 1 for rank in range(5)]


def test_who_waits_in_vain_is_told_once_of_each_loss_and_may_go_on():
    def worker(comm):
        if comm.rank in (1, 2):
            while comm.rank - 1 and 1 not in comm.lost:
                time.sleep(0.002)
            die()
        if comm.rank == 3:
            lost = (
                met(lambda: comm.recv(torch.zeros(1), 1)),
                met(lambda: comm.recv(torch.zeros(1), 2)),
            )
        else:
            lost = (
                met(lambda: comm.recv(torch.zeros(1), 3)),
                met(lambda: comm.recv(torch.zeros(1), 3)),
            )
        return {*lost}, comm.together(lambda left: left.all_reduce(x := torch.ones(1)) or x.item())

    run = survived(worker, 4, (1, 2))
    assert run.results == [({1, 2}, 2.0), None, None, ({1, 2}, 2.0)]


def test_who_has_not_yet_woken_up_to_a_loss_is_in_no_deadlock():
    """A rank that the system lets sleep on, whatever has come for it."""

    def worker(comm):
        if comm.rank:
            die()
        comm.process.pipes.sleep = lambda left: time.sleep(1.5)
        return met(lambda: comm.recv(torch.zeros(SHORT), 1))

    assert survived(worker, 2, (1,)).results[0] == 1


def test_a_run_out_of_time_says_who_was_lost(tmp_path, monkeypatch):
    there = tmp_path / "there"
    out_of_time.when(monkeypatch, there.exists)

    def worker(comm):
        if comm.rank == 1:
            die()
        while not comm.lost:
            time.sleep(0.002)
        there.touch()
        time.sleep(60)

    with pytest.raises(RunTimeout, match="rank 1 was killed by signal 9, and the run lost it"):
        launch(worker, 2, may_lose=(1,))


def test_a_rank_whose_pipe_is_full_is_told_when_it_has_room():
    def worker(comm):
        if comm.rank == 1:
            for _ in range(400):  # 1.6 MB: a pipe holds 256 KB, and each fills a page of it
                comm.isend(torch.zeros(LONGEST, dtype=torch.uint8), 0, tag=1)
            return None
        if comm.rank == 2:
            time.sleep(0.2)
            die()
        time.sleep(0.6)
        for _ in range(400):
            comm.recv(torch.zeros(LONGEST, dtype=torch.uint8), 1, tag=1)
        return met(lambda: comm.recv(torch.zeros(1), 2))

    assert survived(worker, 3, (2,)).results[0] == 2


def test_a_loss_in_a_pipe_is_read_in_its_order_and_in_pieces():
    record, inbox = loss(3, "was killed by signal 9"), Inbox()
    assert not [*inbox.headers(record[: HEAD.size + 3])] and not inbox.lost
    assert not [*inbox.headers(record[HEAD.size + 3 :] + loss(1, "é" * 9000))]
    assert inbox.lost[3] == "was killed by signal 9" and inbox.lost[1].startswith("ééé")


def test_a_receive_that_another_thread_is_taking_is_not_given_up():
    request = ReceiveRequest.__new__(ReceiveRequest)
    request.channel, request.header = Channel(1, 0, 1), None
    with pytest.raises(RankLost, match="rank 1 is lost: it exited"):
        request.give_up({1: "exited"})
    request.give_up({2: "exited"})
    request.header = Header(0, 0, 0, 0, 0, -1, 0.0, b"")
    request.give_up({1: "exited"})


def test_a_trace_that_states_losses_wrongly_is_refused():
    for lost in ([1], {"2": {"when": 0.1, "how": "x"}}, {"1": {"when": "now", "how": "x"}}):
        with pytest.raises(TraceError, match="meta\\['lost'\\] is"):
            Trace(meta={"clock": "wall", "ranks": 2, "lost": lost}).validate()

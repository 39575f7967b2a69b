"""Workers that are lost in each phase of a run: the rest finishes, and what was lost is counted."""

import copy
import math
import os
import signal
import time

import pytest
import torch
from server_oracle import LR, Mixed, Server, batches, same_bits
from torch import nn

import dlviz
from dlviz.cluster import Comm
from dlviz.machine import classroom
from dlviz.parallel import STRATEGIES
from dlviz.parallel.step.sharded_step import Losses

WORKERS, COUNT = 7, 21  # each worker is dealt 3 batches, or trains 3 times 7 steps on its shards
# worker: where it is lost. A push and a pull are two messages each.
POINTS = {
    1: "at the start",
    2: "after 1 message",
    3: "after 2 messages",
    4: "after 3 messages",
    5: "in the middle of its second batch",
    6: "at the end",
}


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def fail():
    raise KeyError("gone")


def hang():
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    time.sleep(60)


ENDS = {kill: "was killed by signal 9", fail: "raised KeyError", hang: "was killed by signal 14"}


def worker(comm, name, data, options, points):
    """Train, and be lost at a point."""
    point, end = points.get(comm.rank, ""), [*ENDS][comm.rank % 3]
    calls = {"message": 0, "loss": 0}

    def counted(call):
        def count(*args, **keywords):
            if point.startswith(f"after {calls['message']} message"):
                end()
            calls["message"] += 1
            return call(*args, **keywords)

        return count

    def loss(outputs, labels):
        calls["loss"] += 1
        if point == "in the middle of its second batch" and calls["loss"] == 2:
            end()
        return nn.functional.cross_entropy(outputs, labels)

    Comm.send, Comm.recv = counted(Comm.send), counted(Comm.recv)
    if point == "at the start":
        end()
    if point == "at the end":
        Losses.means = lambda self, left: end()
    return STRATEGIES[name](comm, Mixed(), data, loss=loss, lr=LR, **options)


def lost_run(name, data, points=POINTS, workers=WORKERS, **options):
    """A run that loses workers at `points`, all of which it names."""
    may_lose, ranks = [*points], workers + 1
    run = dlviz.launch(
        worker, ranks, args=(name, data, options, points), may_lose=may_lose, timeout=60
    )
    run.trace.validate()
    assert {*run.lost} == {*points} == {int(rank) for rank in run.trace.meta["lost"]}
    for rank, record in run.lost.items():
        assert record.how.startswith([*ENDS.values()][rank % 3]), (rank, record)
    first, *others = [result for result in run.results if result]
    for other in others:
        assert same_bits(first["state"], other["state"])
        assert other["missing"] == first["missing"]
    return run, first


def events(run):
    """Whole pushes, and losses where the server has given up the worker, in order: (worker, came).
    A push is two messages."""
    spans = run.trace.only(rank=0).spans
    found, parts = [], []
    rows = [(k, p) for k, p in zip(spans.kind, spans.peer.tolist(), strict=True) if p >= 0]
    last = {peer: row for row, (kind, peer) in enumerate(rows) if kind == "wait"}
    for row, (kind, peer) in enumerate(rows):
        if kind == "recv":
            parts.append(peer)
            if parts[-2:] == [peer, peer]:
                found.append((peer, True))
                parts = []
        elif kind == "wait" and last[peer] == row:
            found.append((peer, False))
    return found


def whole_batches_learnt(order, bound=math.inf):
    """The weights after these events; and how many gradients never came."""
    server, missing = Server(range(1, WORKERS + 1)), 0
    mine = {each: batches(COUNT)[each - 1 :: WORKERS] for each in range(1, WORKERS + 1)}
    pushed, waiting, left = dict.fromkeys(mine, 0), set(), {*mine}
    for each, came in order:
        if came:
            server.apply(server.gradient(each, *mine[each][pushed[each]]))
            pushed[each] += 1
            waiting.add(each)
        elif each in left and pushed[each] < len(mine[each]):
            left.remove(each)
            missing += len(mine[each]) - pushed[each]
        at_it = [pushed[w] for w in left if pushed[w] < len(mine[w])]
        for w in sorted(waiting):
            if pushed[w] == len(mine[w]) or pushed[w] - min(at_it) <= bound:
                server.pull(w)
                waiting.remove(w)
    return server.model.state_dict(), missing


PUSHES = {1: 0, 2: 0, 3: 1, 4: 1, 5: 1, 6: 3, 7: 3}  # whole ones, of 3


@pytest.mark.parametrize("bound", [math.inf, 1])
def test_an_asynchronous_server_goes_on_without_the_lost_and_counts_their_batches(bound):
    name, options = "async_server", {}
    if bound < math.inf:
        name, options = "stale_synchronous", {"bound": bound}
    run, result = lost_run(name, batches(COUNT), rule="momentum", **options)
    order = events(run)
    came = [each for each, whole in order if whole]
    assert {each: came.count(each) for each in PUSHES} == PUSHES
    state, missing = whole_batches_learnt(order, bound)
    assert result["missing"] == missing == COUNT - len(came)
    assert same_bits(result["state"], state)
    assert len(run.trace.only(rank=0, kind="update").spans) == len(came)
    known = [not math.isnan(loss) for loss in result["losses"]]
    assert known == [number % WORKERS == 6 for number in range(COUNT)]


def test_a_synchronous_server_goes_on_with_the_shards_of_those_that_are_left():
    data = batches(3)
    run, result = lost_run("sync_server", data, rule="momentum")
    order = events(run)
    came = [each for each, whole in order if whole]
    assert {each: came.count(each) for each in PUSHES} == PUSHES
    server, left, on_time, step = Server([0]), {*range(1, WORKERS + 1)}, [], 0
    for each, whole in order:
        if whole:
            on_time.append(each)
        else:
            left.discard(each)
        while step < 3 and left and len(on_time) >= len(left):
            parts = {w: [part.tensor_split(WORKERS)[w - 1] for part in data[step]] for w in on_time}
            found = [[len(x) * g for g in server.gradient(0, x, y)] for x, y in parts.values()]
            total = found[0]
            for others in found[1:]:
                total = [a + b for a, b in zip(total, others, strict=True)]
            rows = sum(len(x) for x, _ in parts.values())
            server.apply([g / rows for g in total])
            server.pull(0)
            step, on_time = step + 1, []
    assert same_bits(result["state"], server.model.state_dict())
    assert result["missing"] == 3 * WORKERS - len(came) and result["dropped"] == 0
    assert len(run.trace.only(rank=0, kind="update").spans) == 3


# Of 3 models, by form: a worker gets the centre before it sends its own, or after.
MODELS = {
    "round_robin": {**PUSHES, 3: 0, 4: 0},
    "synchronous": {**PUSHES, 3: 0, 4: 0},
    "asynchronous": PUSHES,
}


@pytest.mark.parametrize("form", MODELS)
def test_the_centre_is_met_by_those_that_are_left(form):
    data = batches(3 if form == "synchronous" else COUNT)
    if form == "round_robin":  # where each has the samples in memory of their own
        data = [(inputs.clone(), labels) for inputs, labels in data]
    run, result = lost_run("easgd", data, rule="sgd", alpha=0.1, form=form)
    came = [each for each, whole in events(run) if whole]
    assert {each: came.count(each) for each in PUSHES} == MODELS[form]
    centre, workers = Server([]).model, {each: Server([0]) for each in PUSHES}

    def meet(each, batch):
        """Equation 1; returns the model as it was, for equation 2."""
        model, old = workers[each].model, copy.deepcopy(workers[each].model)
        workers[each].pull(0)
        gradients = workers[each].gradient(0, *batch)
        with torch.no_grad():
            for p, g, c in zip(model.parameters(), gradients, centre.parameters(), strict=True):
                p -= LR * (g + 0.1 / LR * (p - c))
        return old

    def move(olds):
        with torch.no_grad():
            for place, c in enumerate(centre.parameters()):
                c += 0.1 * sum(list(old.parameters())[place] - c for old in olds)

    if form == "synchronous":
        for step, batch in enumerate(data):
            here = [each for each in PUSHES if MODELS[form][each] > step]
            move([meet(w, [part.tensor_split(WORKERS)[w - 1] for part in batch]) for w in here])
    else:
        mine = {each: iter(data[each - 1 :: WORKERS]) for each in PUSHES}
        for each in came:
            move([meet(each, next(mine[each]))])
    assert same_bits(result["state"], centre.state_dict())
    assert result["missing"] == 3 * WORKERS - len(came)


class Wide(nn.Module):
    """A push of more bytes than follow the header, so that they are lost with their worker."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.only = nn.Linear(5, 3000)

    def forward(self, x):
        return self.only(x)


def test_a_push_whose_bytes_are_gone_is_missing(monkeypatch):
    monkeypatch.setenv("DLVIZ_TRANSPORT", "memory")  # where they lie in their sender's memory

    def gone_in_flight(comm):
        send, recv, calls = Comm.send, Comm.recv, []

        def send_and_die(self, tensor, dst):
            calls.append(dst)
            if len(calls) < 2:
                return send(self, tensor, dst)
            self.isend(tensor, dst)
            kill()

        def receive_late(self, tensor, src):
            while 1 in calls and 1 not in self.lost:
                time.sleep(0.01)
            calls.append(recv(self, tensor, src))
            return calls[-1]

        if comm.rank == 1:
            Comm.send = send_and_die
        if comm.rank == 0:
            Comm.recv = receive_late
        return STRATEGIES["async_server"](comm, Wide(), batches(6), "sgd", lr=LR)

    run = dlviz.launch(gone_in_flight, 3, may_lose=(1,), timeout=60)
    came = run.trace.only(rank=0, kind="recv").spans.peer.tolist()
    assert sorted(came) == [1, 2, 2, 2]
    assert run.results[0]["missing"] == run.results[2]["missing"] == 2


def test_without_a_worker_left_a_server_returns_what_it_has_learnt():
    for name in ("sync_server", "async_server", "easgd"):
        points = {1: "at the end", 2: "after 2 messages"}
        run, result = lost_run(name, batches(4), points, workers=2, rule="sgd")
        assert [math.isnan(loss) for loss in result["losses"]] == [True] * 4
        applied = len(run.trace.only(rank=0, kind="update").spans)
        assert applied == (4 if name == "sync_server" else 4 - result["missing"])
    points = dict.fromkeys((1, 2), "after 2 messages")
    run, result = lost_run("sync_server", batches(4), points, workers=2, rule="sgd")
    assert result["missing"] == 2 * 3
    spans = run.trace.only(rank=0).spans
    assert [(spans.kind == kind).sum() for kind in ("update", "phase")] == [1, 2]  # and no more


def test_a_lost_worker_takes_the_place_of_a_backup():
    points = {1: "at the start"}
    run, result = lost_run("sync_server", batches(6), points, workers=3, rule="sgd", backups=1)
    came = [each for each, whole in events(run) if whole]
    assert (result["missing"], result["dropped"]) == (6, 0)
    for step in range(6):  # it has the pushes of both that are left
        assert {*came[2 * step : 2 * step + 2]} == {2, 3}


def test_when_the_server_dies_everyone_stops_and_its_name_comes_first():
    def die_in_step_2(comm, name):
        if comm.rank == 0:
            recv, calls = Comm.recv, []

            def counted(self, tensor, src=None):
                calls.append(src)
                if len(calls) == 5:
                    kill()
                return recv(self, tensor, src)

            Comm.recv = counted
        return STRATEGIES[name](comm, Mixed(), batches(8), "sgd", lr=LR)

    for name in ("sync_server", "async_server"):
        with pytest.raises(dlviz.RankError, match="rank 0 was killed by SIGKILL") as caught:
            dlviz.launch(die_in_step_2, 3, args=(name,), may_lose=(1, 2), timeout=60)
        assert caught.value.rank == 0
    run = None
    with pytest.raises(dlviz.RankError, match="RankLost: rank 0 is lost: it was killed") as caught:
        run = dlviz.launch(die_in_step_2, 3, args=("sync_server",), may_lose=(0,), timeout=60)
    assert run is None and caught.value.trace.meta["lost"].keys() == {"0"}


@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine
def test_a_stale_synchronous_server_does_not_wait_for_the_clock_of_a_lost_worker():
    """Rank 3 computes at its first batch until the others are s ahead, and is lost."""

    def slow(comm):
        model, begun = Mixed(), comm.shared(torch.zeros(4)).tensor

        def begin(model, inputs):
            begun[comm.rank] += 1
            while comm.rank == 3:
                if begun[1:3].min() == 3:
                    kill()
                time.sleep(1e-3)

        model.register_forward_pre_hook(begin)
        options = {"lr": LR, "bound": 2}
        return STRATEGIES["stale_synchronous"](comm, model, batches(18), "sgd", **options)

    run = dlviz.launch(slow, 4, machine=classroom(4, step=0.002), may_lose=(3,), timeout=60)
    assert run.results[0]["missing"] == 6
    replies = run.trace.messages[run.trace.messages.src == 0]
    for rank in (1, 2):
        sent = replies[(replies.dst == rank) & (replies.sent < run.lost[3].when)]
        assert len(sent) == 2 * 2 and (replies.dst == rank).sum() == 6 * 2

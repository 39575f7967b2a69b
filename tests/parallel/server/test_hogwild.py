"""Hogwild against one process of plain torch, which is only given the order of updates."""

import copy
import math
import os
import signal
import statistics

import pytest
import torch
from server_oracle import batches
from torch import nn

import dlviz
from dlviz import datasets, metrics, models
from dlviz.cluster.parent.start import shared_memory
from dlviz.machine import classroom
from dlviz.parallel import STRATEGIES, update_rules
from dlviz.parallel.server import hogwild

LR, MOMENTUM = 0.1, 0.9
pytestmark = pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine


@pytest.fixture(autouse=True)
def clean():
    yield
    names = os.listdir(shared_memory())
    assert not [name for name in names if name.startswith(f"dlviz-{os.getpid()}-")]


class Mixed(nn.Module):
    """Parameters of two dtypes, one that lies across its memory and one that no batch uses."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Linear(5, 8), nn.Linear(8, 3).double()
        self.inner.weight = nn.Parameter(torch.randn(5, 8).T)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.outer(self.inner(x).tanh().double())


def trained(ranks, batch_count=14, machine=None, **options):
    args, kwargs = (Mixed(), batches(batch_count), "momentum"), {"lr": LR, **options}
    run = dlviz.launch(STRATEGIES["hogwild"], ranks, machine=machine, args=args, kwargs=kwargs)
    run.trace.validate()
    return run


def replayed(order, data):
    """The weights after updates by these ranks, one after the other, and each batch's loss."""
    torch.set_num_threads(1)
    ranks = sorted(set(order))
    model, losses = Mixed(), {}
    had = {rank: copy.deepcopy(model) for rank in ranks}
    velocity = {rank: [torch.zeros_like(p) for p in model.parameters()] for rank in ranks}
    left = {rank: iter(range(rank, len(data), len(ranks))) for rank in ranks}
    for rank in order:
        number = next(left[rank])
        loss = nn.functional.cross_entropy(had[rank](data[number][0]), data[number][1])
        losses[number] = loss.item()
        mine = list(had[rank].parameters())
        gradients = torch.autograd.grad(loss, mine, allow_unused=True)
        with torch.no_grad():
            for p, v, g in zip(model.parameters(), velocity[rank], gradients, strict=True):
                if g is not None:
                    v *= MOMENTUM
                    v += g
                    p -= LR * v
        had[rank] = copy.deepcopy(model)
    return model.state_dict(), [losses[number] for number in range(len(data))]


def same_bits(result, state):
    return all(torch.equal(result["state"][name], value) for name, value in state.items())


# -- with the lock -------------------------------------------------------------------------------
@pytest.mark.parametrize("machine", [None, classroom(4, step=0.002, factors=[1, 1, 1, 4])])
def test_under_the_lock_the_order_of_updates_alone_gives_the_weights_to_the_last_bit(machine):
    run = trained(4, machine=machine, lock=True)
    updates = run.trace.only(kind="update").spans
    order = updates.rank[updates.start.argsort()].tolist()
    assert sorted(order) == sorted([0, 1, 2, 3] * 3 + [0, 1])  # whole batches, dealt in turn
    state, losses = replayed(order, batches(14))
    for result in run.results:
        assert same_bits(result, state) and result["losses"] == losses
        assert (result["lost"], result["updates"]) == (0, 14 * (50 + 27))
    assert not same_bits(run.results[0], replayed(order[::-1], batches(14))[0])


def test_one_rank_is_one_process_with_the_lock_and_without():
    state, losses = replayed([0] * 5, batches(5))
    for lock in (True, False):
        (result,) = trained(1, 5, lock=lock).results
        assert same_bits(result, state) and result["losses"] == losses and not result["lost"]


def test_uncounted_the_memory_holds_only_the_weights_which_learn_the_same():
    def worker(comm):
        sizes, share = [], comm.shared
        comm.shared = lambda tensor: sizes.append(tensor.nbytes) or share(tensor)
        trained = STRATEGIES["hogwild"](comm, Mixed(), batches(5), "momentum", lr=LR, count=False)
        return trained, sizes

    result, sizes = dlviz.launch(worker, 1).results[0]
    state, losses = replayed([0] * 5, batches(5))
    assert same_bits(result, state) and result["losses"] == losses
    assert "lost" not in result and result["updates"] == 5 * (50 + 27)
    assert {50 * 4, 27 * 8} <= {*sizes} and max(sizes) < 50 * 8


def test_updates_are_made_one_at_a_time_and_waits_are_recorded():
    run = trained(4, machine=classroom(4, step=0.004), lock=True)
    spans = run.trace.spans
    holds = spans[(spans.kind == "lock") & (spans.name == "hold")]
    assert len(holds) == 14
    times = sorted(zip(holds.start.tolist(), holds.end.tolist(), strict=True))
    assert all(one[1] <= other[0] + 1e-9 for one, other in zip(times, times[1:], strict=False))
    waits = spans[(spans.kind == "lock") & (spans.name == "wait")]
    assert (waits.end - waits.start).max() > 0.005  # three others at 4 ms each


def test_under_the_lock_each_update_is_one_more_that_each_other_rank_has_not_seen():
    trace = trained(4, 22, lock=True).trace
    updates = trace.only(kind="update").spans
    order = updates.rank[updates.start.argsort()].tolist()
    table = metrics.staleness(trace)
    assert table["rank"].tolist() == order
    by_hand = []
    for place, rank in enumerate(order):
        before = [other for other in range(place) if order[other] == rank]
        by_hand.append(place - before[-1] - 1 if before else place)
    assert table["staleness"].tolist() == by_hand
    in_flight = sum(order[::-1].index(rank) for rank in range(4))
    assert sum(by_hand) + in_flight == 3 * 22


# -- without it ----------------------------------------------------------------------------------
def test_without_the_lock_the_digits_are_learnt_all_the_same():
    model = models.MLP()
    data = list(datasets.batches(*datasets.digits("train"), batch=64, steps=120))
    run = dlviz.launch(STRATEGIES["hogwild"], 4, args=(model, data, "sgd"), kwargs={"lr": 0.2})
    first = run.results[0]
    model.load_state_dict(first["state"])
    # It reads 0.7 to 0.9, by how updates happened to overlap, and less where one that was held up
    # has put old weights back at the end; a network that guesses reads 0.1, its loss is ln 10.
    assert statistics.median(first["losses"][-30:]) < 0.8 * math.log(10)
    assert models.accuracy(model, *datasets.digits("test")) > 0.2
    assert 0 <= first["lost"] < first["updates"] == 120 * sum(p.numel() for p in model.parameters())
    assert not run.trace.only(kind="lock").spans
    for result in run.results:
        assert same_bits(result, first["state"]) and result["losses"] == first["losses"]


class Overlapping(update_rules.SGD):
    """All ranks have read before one writes, in their first update."""

    def __init__(self, comm, lr=LR):
        super().__init__(lr=lr)
        self.comm, self.steps = comm, 0

    def step(self, parameters, gradients):
        super().step(parameters, gradients)
        self.steps += 1
        if self.steps == 1:
            self.comm.barrier()


def test_of_two_overlapping_updates_each_weight_has_one_and_the_other_is_counted():
    def worker(comm):
        return STRATEGIES["hogwild"](comm, Mixed(), batches(2), Overlapping(comm))

    apart = []
    for inputs, labels in batches(2):
        model = Mixed()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        update_rules.SGD(LR).step([*model.parameters()], [p.grad for p in model.parameters()])
        apart.append(model.state_dict())
    for result in dlviz.launch(worker, 2).results:
        assert result["lost"] == 50 + 27 and result["updates"] == 2 * (50 + 27)
        for name, value in result["state"].items():
            assert ((value == apart[0][name]) | (value == apart[1][name])).all()


class Counted(nn.Module):
    """Each update takes exactly 1 from each weight, so that the weights count too."""

    def __init__(self, dtype):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(30_001, dtype=dtype))

    def forward(self, x):
        return self.w.sum().expand(len(x))


UPDATES = 60
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


@pytest.fixture(scope="module")
def lost_by_dtype():
    """The weights of each dtype on rank 0 of four."""

    def worker(comm):
        found = {}
        for dtype in DTYPES:
            data, rule = [(torch.zeros(1), torch.zeros(1))] * UPDATES, Overlapping(comm, lr=1.0)
            options = {"loss": lambda outputs, labels: outputs.mean()}
            with hogwild.pinned(comm.rank):
                trained = STRATEGIES["hogwild"](comm, Counted(dtype), data, rule, **options)
            found[dtype] = trained
        return found

    return dlviz.launch(worker, 4).results[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_counted_as_lost_is_what_the_weights_themselves_lack(lost_by_dtype, dtype):
    result = lost_by_dtype[dtype]
    w = result["state"]["w"].double()
    assert result["updates"] == UPDATES * len(w)
    assert result["lost"] == int((UPDATES + w).sum())
    assert (w < 0).all() and result["lost"] >= 3 * len(w), "of the first four, one is left"


# -- sparse gradients ----------------------------------------------------------------------------
class Bag(nn.Module):
    """Words to one of two classes; few of the rows are used."""

    def __init__(self, sparse):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(50, 4, sparse=sparse)
        self.out = nn.Linear(4, 2)

    def forward(self, words):
        return self.out(self.embed(words).mean(1))


def sentences(count):
    """Batches of 3 sentences of 5 words, the same word more than once."""
    generator = torch.Generator().manual_seed(3)
    words = torch.randint(0, 10, (count, 3, 5), generator=generator)
    return list(zip(words, torch.randint(0, 2, (count, 3), generator=generator), strict=True))


def test_sparse_gradients_equal_dense_ones_and_write_only_their_rows():
    def worker(comm):
        found = {}
        for rule in ("sgd", "momentum"):
            for sparse in (True, False):
                model, data = Bag(sparse), sentences(6)
                found[rule, sparse] = STRATEGIES["hogwild"](comm, model, data, rule, lock=True)
        return found

    found = dlviz.launch(worker, 1).results[0]
    for rule in ("sgd", "momentum"):
        sparse, dense = found[rule, True], found[rule, False]
        for name, value in dense["state"].items():
            torch.testing.assert_close(sparse["state"][name], value, rtol=1e-6, atol=1e-7)
    used = sum(len(words.unique()) for words, _ in sentences(6))
    assert found["sgd", True]["updates"] == 4 * used + 6 * 10
    assert found["momentum", True]["updates"] == 6 * (200 + 10)  # momentum moves every row


def test_rows_that_only_one_rank_uses_are_never_lost():
    def worker(comm):
        """Rank r uses the rows r, r + 4, ... and no other parameter is trained."""
        model = Bag(sparse=True)
        model.out.requires_grad_(False)
        rows = torch.arange(40).view(10, 4).T[:, None]  # (rank, 1, 10)
        data = [(rows[each % 4], torch.zeros(1, dtype=torch.int64)) for each in range(80)]
        return STRATEGIES["hogwild"](comm, model, data, "sgd")

    result = dlviz.launch(worker, 4).results[0]
    assert (result["lost"], result["updates"]) == (0, 80 * 40)


# -- increments ----------------------------------------------------------------------------------
def test_no_increment_is_lost_under_the_lock_and_pinned_ranks_lose_some_without():
    def worker(comm):
        cores = os.sched_getaffinity(0)
        found = [
            hogwild.increments(comm, 500, lock=True),
            hogwild.increments(comm, 50, lock=True, pins=True),
            hogwild.increments(comm, 20_000, pins=True),
            hogwild.increments(comm, 0),
        ]
        return found, os.sched_getaffinity(0) == cores

    run = dlviz.launch(worker, 4)
    for found, restored in run.results:
        assert found == run.results[0][0] and restored
        assert found[:2] == [0, 0] and 0 < found[2] < 4 * 20_000 and found[3] == 0
    (alone,) = dlviz.launch(hogwild.increments, 1, args=(1000,)).results
    assert alone == 0


# -- a rank that is lost -------------------------------------------------------------------------
class Mortal(update_rules.SGD):
    """Rank 1 dies in its third update."""

    def __init__(self, comm):
        super().__init__(lr=LR)
        self.comm, self.steps = comm, 0

    def step(self, parameters, gradients):
        self.steps += 1
        super().step(parameters, gradients)
        if self.comm.rank == 1 and self.steps == 3:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("phase", ["forward", "update", "update under the lock"])
def test_the_others_train_on_without_a_rank_that_is_lost(phase):
    def worker(comm):
        def loss(outputs, labels):
            if phase == "forward" and comm.rank == 1 and torch.equal(labels, batches(16)[9][1]):
                raise ValueError("no such label")
            return nn.functional.cross_entropy(outputs, labels)

        rule = "sgd" if phase == "forward" else Mortal(comm)
        lock, lr = phase == "update under the lock", LR if phase == "forward" else None
        train = STRATEGIES["hogwild"]
        return train(comm, Mixed(), batches(16), rule, loss=loss, lr=lr, lock=lock)

    run = dlviz.launch(worker, 4, timeout=30, may_lose=(1,))
    assert list(run.lost) == [1]
    assert ("no such label" if phase == "forward" else "signal 9") in run.lost[1].how
    left = [result for result in run.results if result is not None]
    assert len(left) == 3 and all(same_bits(each, left[0]["state"]) for each in left)
    for result in left:
        without = [number for number, loss in enumerate(result["losses"]) if loss != loss]
        assert without == ([9, 13] if phase == "forward" else [13])
        assert result["updates"] == (12 + 2) * (50 + 27)
        assert result["lost"] == 0 or not phase.endswith("lock")


# -- what it refuses -----------------------------------------------------------------------------
def test_invalid_arguments_are_refused_before_training():
    def worker(comm):
        with pytest.raises(ValueError, match="rule='sgdm' is not known: use sgd, "):
            STRATEGIES["hogwild"](comm, Mixed(), batches(2), "sgdm")
        comm.device = torch.device("cuda")
        with pytest.raises(ValueError, match="computes on cuda: give launch device='cpu'"):
            STRATEGIES["hogwild"](comm, Mixed(), batches(2))

    dlviz.launch(worker, 2)

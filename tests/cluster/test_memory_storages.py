"""Storages: every live storage once, by what it is; beside torch's MemTracker, and bytes that are
known."""

import gc
import random
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import dlviz
from dlviz import metrics
from dlviz.cluster import Storages, label
from dlviz.cluster.memory import KINDS
from dlviz.cluster.recording.levels import SHARE, Levels
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.models.transformer import Block
from dlviz.parallel import data, pipeline, update_rules
from dlviz.parallel.data.buckets import Bucket

MB = 2**20
FLOATS = MB // 4  # in 1 MB

MODELS = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(inplace=True), nn.Linear(128, 64)),
        (32, 64),
    ),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
        ),
        (16, 3, 12, 12),
    ),
    "block": (lambda: Block(64, 4, 4, dropout=0.0, seed=0, number=0), (4, 16, 64)),
}
OPTIMIZERS = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, foreach=False),
    "adam foreach": lambda p: torch.optim.Adam(p, foreach=True),
}


def train(net, optimizer, x, steps=1):
    for _ in range(steps):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()


def made(model, optimizer):
    torch.manual_seed(0)
    make, shape = MODELS[model]
    net, x = make(), torch.randn(shape)
    net(x)  # lazy layers
    return net, OPTIMIZERS[optimizer](net.parameters()), x


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_memory_is_what_mem_tracker_counts_at_the_peak_and_after_the_step(model, optimizer):
    net, moves, x = made(model, optimizer)
    from torch.distributed._tools.mem_tracker import MemTracker  # loads torch's compiler

    tracker = MemTracker()
    tracker.track_external(net, x)
    with tracker:
        train(net, moves, x)
    theirs = [tracker.get_tracker_snapshot(which) for which in ("peak", "current")]
    net, moves, x = made(model, optimizer)
    with Storages(None, net) as storages:
        label("other", x)
        train(net, moves, x)
        now = storages.now
    for ours, their in zip((storages.peak, now), theirs, strict=True):
        assert ours.total == pytest.approx(their[torch.device("cpu")]["Total"], rel=0.01)
        assert sum(ours.by_kind.values()) == ours.total


def test_adam_holds_16_bytes_a_parameter_between_steps_and_20_at_the_peak_with_foreach():
    net = nn.Sequential(*[nn.Linear(256, 256) for _ in range(6)])
    count, counters = sum(p.numel() for p in net.parameters()), 4 * 12  # of steps, a parameter each
    assert count == 394_752
    peaks = {}
    for foreach in (True, False):
        optimizer = torch.optim.Adam(net.parameters(), foreach=foreach)
        net.zero_grad()
        with Storages(None, net) as storages:
            for _ in range(2):
                net(torch.randn(8, 256)).square().mean().backward()
                optimizer.step()
                assert storages.now.total == 16 * count + counters
                assert storages.now.by_kind == {
                    **dict.fromkeys(KINDS, 0),
                    "parameters": 4 * count,
                    "gradients": 4 * count,
                    "optimizer": 8 * count + counters,
                }
                storages.begin_step()
                optimizer.zero_grad()
        peaks[foreach] = [step.total for step in storages.steps]
    assert peaks[True] == [20 * count + counters] * 2 == [7_895_088] * 2
    # one parameter at a time: two temporaries of the weight, one of the bias before
    assert peaks[False] == [16 * count + counters + 4 * (2 * 256 * 256 + 256)] * 2


# -- one storage -------------------------------------------------------------------------------
def test_views_count_once_and_a_freed_storage_is_gone():
    with Storages() as storages:
        whole = torch.zeros(FLOATS)
        views = [whole[3:], whole.view(2, -1), whole.view(2, -1).T, whole.detach()]
        assert storages.now.total == MB
        del whole
        assert storages.now.total == MB  # its views hold it
        del views
        assert storages.now.total == 0
    assert storages.peak.total == MB


def test_a_storage_resized_to_0_counts_0_and_again_once_it_grows():
    with Storages() as storages:
        x = torch.zeros(FLOATS)
        x.untyped_storage().resize_(0)
        assert storages.now.total == 0
        x.untyped_storage().resize_(MB)
        assert storages.now.total == MB
        x.resize_(2 * FLOATS)
        assert storages.now.total == 2 * MB
    before = torch.UntypedStorage.resize_
    with Storages():
        assert torch.UntypedStorage.resize_ is not before
    assert torch.UntypedStorage.resize_ is before


def test_data_of_a_parameter_that_is_replaced_is_freed():
    with Storages() as storages:
        p = nn.Parameter(torch.zeros(FLOATS))
        p.data = torch.zeros(2 * FLOATS)
        p.data.add_(1)
        assert storages.now.total == 2 * MB


def test_a_storage_from_before_counts_from_its_first_use_and_stays_until_it_is_freed():
    x = torch.zeros(FLOATS)
    with Storages() as storages:
        assert storages.now.total == 0
        x.add_(1)
        assert storages.now.total == MB
        del x
        assert storages.now.total == 0


def test_tensors_without_memory_do_not_count_and_sparse_ones_by_their_parts():
    with Storages() as storages:
        torch.empty(FLOATS, device="meta").add(1)
        assert storages.peak.total == 0
        x = torch.sparse_coo_tensor([[0, 5]], torch.ones(2, 8), (9, 8), check_invariants=True)
        assert storages.now.total == x._indices().nbytes + x._values().nbytes == 16 + 64


@pytest.mark.parametrize("seed", range(4))
def test_any_program_holds_what_its_tensors_need(seed):
    choose, held = random.Random(seed), []
    with Storages() as storages:
        for _ in range(300):
            what = choose.choice(("new", "new", "view", "free", "resize", "label", "save"))
            if what == "new" or not held:
                held.append(torch.zeros(choose.randrange(50)))
            elif what == "view":
                held.append(choose.choice(held).detach()[:0])
            elif what == "free":
                held.pop(choose.randrange(len(held)))
            elif what == "resize":
                choose.choice(held).untyped_storage().resize_(choose.randrange(200))
            elif what == "label":
                label(choose.choice(KINDS), choose.choice(held))
            else:
                held.append(torch.zeros(choose.randrange(50), requires_grad=True).exp())
            each = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in held}
            leaves = [t.grad_fn.next_functions[0][0].variable for t in held if t.grad_fn]
            each |= {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in leaves}
            now = storages.now
            assert now.total == sum(each.values()) == sum(now.by_kind.values())
            assert min(now.by_kind.values()) >= 0
            del leaves
        held.clear()
        assert storages.now.total == 0


# -- kinds -------------------------------------------------------------------------------------
def leak_parameters(net, held):
    held.append(nn.Embedding(FLOATS // 64, 64))


def leak_activations(net, held):
    held.append(net[0].bias.sum().expand(FLOATS).exp().sum())  # exp saves its result


def leak_other(net, held):
    held.append(torch.zeros(FLOATS))


@pytest.mark.parametrize("leak", (leak_parameters, leak_activations, leak_other))
def test_a_leak_of_1_mb_a_step_is_seen_as_what_it_is(leak):
    net, optimizer, x = made("mlp", "adam")
    held: list = []
    ends, kind = [], leak.__name__.removeprefix("leak_")
    with Storages(None, net) as storages:
        for _ in range(4):
            train(net, optimizer, x)
            leak(net, held)
            ends.append(storages.now)
            storages.begin_step()
    for before, after in zip(ends, ends[1:], strict=False):
        grown = {k: after.by_kind[k] - before.by_kind[k] for k in KINDS}
        more = grown.pop(kind)
        assert MB <= more < 1.01 * MB
        assert max(map(abs, grown.values())) < 0.01 * MB
    totals = [step.total for step in storages.steps[1:]]
    assert totals[2] - totals[1] == pytest.approx(MB, rel=0.01)


def test_activations_are_what_autograd_holds_until_backward_has_used_it():
    w = nn.Parameter(torch.ones(FLOATS))
    with Storages(None) as storages:
        saved = (w * 1).exp()  # its result is saved
        loss = saved.sin().sum()  # and again; w and the factor are not
        assert storages.now.by_kind["activations"] == MB
        assert storages.now.by_kind["parameters"] == MB
        alone = saved.sum().detach()
        del saved
        assert storages.now.by_kind["activations"] == MB  # autograd alone holds it
        loss.backward()
        assert storages.now.by_kind["activations"] == 0
        assert storages.now.by_kind["gradients"] == MB
        assert storages.now.total == 2 * MB + alone.nbytes + loss.nbytes
        w.grad = None
        output = w.exp()
        output.sum().backward()
        assert storages.now.by_kind["activations"] == 0
        assert storages.now.by_kind["other"] >= output.nbytes  # no backward needs it any more


@pytest.mark.parametrize("model", MODELS)
def test_training_is_the_same_to_the_last_bit(model):
    found = []
    for watch in (False, True):
        net, optimizer, x = made(model, "adam")
        if watch:
            with Storages(None, net):
                train(net, optimizer, x, steps=3)
        else:
            train(net, optimizer, x, steps=3)
        assert not any(p._post_accumulate_grad_hooks for p in net.parameters())
        found.append([*net.state_dict().values()])
    assert all(map(torch.equal, *found))


def test_a_saved_tensor_that_is_changed_is_still_refused():
    with Storages(), pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result = nn.Parameter(torch.ones(3)).exp()
        result.mul_(2)
        result.sum().backward()


def test_parameters_and_gradients_are_found_without_the_model():
    net, _, x = made("mlp", "adam")
    with Storages() as storages:
        net(x).sum().backward()
        nbytes = sum(p.nbytes for p in net.parameters())
        assert storages.now.by_kind["parameters"] == nbytes
        assert storages.now.by_kind["gradients"] == nbytes


def test_parameters_that_share_a_storage_have_each_their_gradient():
    flat = torch.zeros(2 * FLOATS)
    first, second = map(nn.Parameter, flat.split(FLOATS))
    with Storages() as storages:
        (first.exp() + second.exp()).sum().backward()
        assert storages.now.by_kind["parameters"] == 2 * MB
        assert storages.now.by_kind["gradients"] == 2 * MB


def test_the_state_of_our_rules_is_the_optimizers():
    p, rule = torch.zeros(FLOATS), update_rules.Adam(0.1)
    with Storages() as storages:
        rule.step([p], [torch.ones(FLOATS)])
        assert storages.now.by_kind["optimizer"] == 2 * MB


def test_what_a_torch_optimizer_moves_are_parameters_and_its_earlier_state_is_its_own():
    p = torch.zeros(FLOATS, requires_grad=True)
    optimizer = torch.optim.Adam([p])
    for watches in (False, True):
        with Storages() if watches else nullcontext() as storages:
            for state in optimizer.state[p].values():
                state.clone()  # first seen outside of the optimizer's step
            p.sum().backward()
            optimizer.step()
    found = storages.now.by_kind
    assert found["parameters"] == found["gradients"] == MB
    assert found["optimizer"] == 2 * MB + 4  # made before the with; and the count of steps


def test_a_bucket_is_communication():
    p = nn.Parameter(torch.zeros(FLOATS))
    with Storages() as storages:
        bucket = Bucket([p])
    assert storages.now.by_kind["communication"] == bucket.flat.nbytes > MB


def test_a_label_goes_before_what_is_found_and_the_last_one_counts():
    p = nn.Parameter(torch.zeros(FLOATS))
    label("other", p)  # nothing watches
    with Storages() as storages:
        label("communication", p)
        p.sum()
        assert storages.now.by_kind["communication"] == MB
        label("optimizer", p.detach())
        assert storages.now.by_kind["optimizer"] == MB
    with pytest.raises(ValueError, match="kind='weights' is unknown: use parameters, gradients"):
        label("weights", p)


def test_storages_inside_of_storages_both_count_and_each_watches_once():
    with Storages() as outer:
        x = torch.ones(FLOATS, requires_grad=True)
        with Storages() as inner:
            loss = x.exp().sum()
            for each in (inner, outer):
                assert each.now.by_kind["activations"] == MB
        loss.backward()
        assert outer.now.by_kind["activations"] == 0
        with pytest.raises(ValueError, match="watched already"):
            inner.__enter__()
    assert inner.now.by_kind["activations"] == MB  # as it was at the end of its with


def test_steps_are_those_that_begin_step_ended():
    with Storages() as storages:
        for size in (1, 3, 2):
            torch.zeros(size * FLOATS)
            storages.begin_step()
        torch.zeros(5 * FLOATS)
    assert [step.total // MB for step in storages.steps] == [1, 3, 2]
    assert storages.peak.total == 5 * MB


def test_what_a_cycle_holds_counts_until_it_is_collected():
    with Storages() as storages:
        cycle = SimpleNamespace(x=torch.zeros(FLOATS))
        cycle.itself = cycle
        del cycle
        assert storages.now.total == MB
        gc.collect()
        assert storages.now.total == 0


def test_parts_of_a_dtensor_count():
    def worker(comm):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import distribute_module, distribute_tensor

        mesh = init_device_mesh("cpu", (1,))
        net = distribute_module(nn.Linear(64, 64), mesh)
        with Storages(comm, net) as storages:
            net(distribute_tensor(torch.ones(2, 64), mesh)).sum().backward()
            return storages.now.by_kind

    found = dlviz.launch(worker, ranks=1).results[0]
    assert found["parameters"] == found["gradients"] == 4 * (64 * 64 + 64)


# -- ranks, lanes, the Trace -------------------------------------------------------------------
def trained(comm, callback=True, rule="adam"):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    batches = [(torch.randn(32, 64), torch.randint(10, (32,))) for _ in range(3)]
    with Storages(comm, net) as storages:
        data.train(comm, net, batches, rule, callback=lambda *_: storages.begin_step())
    return storages.steps, storages.peak, sum(p.nbytes for p in net.parameters())


NET = Machine(Device("test", 1e9, 1e9, 1e9), Topology.switch(2, Link(1e-5, 1e9)), 0.005)


@pytest.mark.parametrize("machine", (None, NET), ids=("wall", "paced"))
@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")
def test_ddp_shows_buckets_as_communication_and_the_trace_has_the_exact_peak(machine):
    run = dlviz.launch(trained, ranks=2, machine=machine)
    memory = run.trace.memory
    assert {*memory.what} <= {*KINDS}  # what the strategy states is left out
    peaks = metrics.peak_memory(run.trace)
    for rank, (steps, last, nbytes) in enumerate(run.results):
        assert peaks[rank] == max(each.total for each in [*steps, last])
        for step in steps:
            assert step.by_kind["communication"] >= nbytes
            assert step.by_kind["parameters"] == nbytes
            assert step.by_kind["optimizer"] >= 2 * nbytes
            assert sum(step.by_kind.values()) == step.total
        rows = memory[memory.rank == rank]
        assert len(rows) < 400
        assert (rows.time[1:] >= rows.time[:-1]).all()


def test_what_a_strategy_stated_before_ends_and_what_it_states_after_counts_again():
    def worker(comm):
        comm.memory("weights", MB)
        with Storages(comm):
            x = torch.zeros(FLOATS)
            comm.memory("weights", 2 * MB)
        comm.memory("weights", 3 * MB)
        return x.sum().item()

    memory = dlviz.launch(worker, ranks=1).trace.memory
    weights = memory.nbytes[memory.what == "weights"]
    assert [*weights] == [MB, 0, 3 * MB]
    assert [*memory.nbytes[memory.what == "other"]] == [MB]


def test_lanes_are_watched():
    def worker(comm):
        lane = comm.lane("side")
        held = []

        def job(comm, number):
            held.append((torch.ones(FLOATS, requires_grad=True) * number).exp())
            with comm.span("collective", "of the lane"):
                held.append(torch.zeros(FLOATS))

        with Storages(comm) as storages:
            lane.submit(job, 1.0).wait()
            first = storages.now.by_kind
            held.clear()
            after = storages.now.total
        lane.submit(job, 1.0).wait()  # nothing watches any more
        lane.close()
        return first, after

    (first, after), *_ = dlviz.launch(worker, ranks=1).results
    assert first["activations"] == first["communication"] == first["other"] == MB
    assert after == 0


def test_many_threads_free_and_allocate_at_once_and_nothing_is_lost():
    with Storages() as storages:

        def work(seed):
            choose, held = random.Random(seed), {}
            with storages.on_this_thread():
                for _ in range(300):
                    held[choose.randrange(5)] = torch.zeros(choose.randrange(1, 100))
                    held[5] = (torch.ones(7, requires_grad=True) * 2).exp()
            return held

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert storages.now.total == 0
        assert set(storages.now.by_kind.values()) == {0}


@pytest.mark.parametrize("microbatches", (1, 4))
def test_a_pipeline_holds_activations(microbatches):
    def worker(comm):
        torch.manual_seed(0)
        stages = [nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(2)]
        batches = [(torch.randn(32, 64), torch.randint(10, (32,))) for _ in range(1)]
        with Storages(comm, stages[comm.rank]) as storages:
            pipeline.train(comm, stages, batches, "sgd", microbatches=microbatches)
        return storages.now.by_kind["activations"]

    run = dlviz.launch(worker, ranks=2)
    assert run.results == [0, 0]
    rows = run.trace.memory[run.trace.memory.what == "activations"]
    for rank in range(2):  # of a microbatch, at least its input and what tanh saves
        assert rows.nbytes[rows.rank == rank].max() >= 2 * 8 * 64 * 4


# -- rows --------------------------------------------------------------------------------------
class Log:
    """Of a rank on the wall clock, or, with `ticks`, of one whose device's clock seldom moves."""

    def __init__(self, ticks=None):
        self.memory, self.moment, self.ticks = [], 0, ticks

    def now(self):
        self.moment += 1
        return self.moment, None if self.ticks is None else float(self.moment // self.ticks)


@pytest.mark.parametrize("ticks", (None, 50))
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_few_and_have_the_exact_peak(seed, ticks):
    choose, log = random.Random(seed), Log(ticks)
    levels, by_kind, highest = Levels(log), {"activations": 0, "other": 0}, 0
    for up in (1, -1) * 3:  # small steps up and down, a thousand each
        for _ in range(1000):
            kind = choose.choice([*by_kind])
            by_kind[kind] = max(0, by_kind[kind] + up * choose.randrange(-5, 11))
            highest = max(highest, sum(by_kind.values()))
            levels.see(sum(by_kind.values()), by_kind)
    levels.see(sum(by_kind.values()), by_kind, row=True)
    rows = [row._asdict() | {"rank": 0, "time": row.time or row.wall * 1e-9} for row in log.memory]
    for row in rows:
        del row["wall"]
    trace = dlviz.Trace(memory=rows, meta={"clock": "wall", "ranks": 1})
    assert metrics.peak_memory(trace)[0] == highest
    assert len(rows) < 2 * 2 * 6 * SHARE  # two kinds, a high before a row, six times up or down
    assert {what: nbytes for what, nbytes, *_ in log.memory} == by_kind

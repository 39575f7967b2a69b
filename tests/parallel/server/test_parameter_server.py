"""Servers against one process of plain torch, which is only given the order of arrivals."""

import math
import time

import numpy as np
import pytest
import torch
from server_oracle import LR, Mixed, Server, batches, same_bits

import dlviz
from dlviz import metrics
from dlviz.machine import classroom
from dlviz.parallel import STRATEGIES

pytestmark = pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine


def held_up(comm, name, data, ahead, options):
    """Rank 3's first gradient takes until the others have begun their number `ahead`."""
    model, begun = Mixed(), comm.shared(torch.zeros(4)).tensor

    def begin(model, inputs):
        begun[comm.rank] += 1
        while comm.rank == 3 and begun[1:3].min() <= ahead:
            time.sleep(1e-3)

    model.register_forward_pre_hook(begin)
    return STRATEGIES[name](comm, model, data, "momentum", lr=LR, **options)


def trained(name, ahead, slow=8, **options):
    """Without a straggler any bound holds: rank 3 is slow by the device's clock, and by the wall's
    however busy the machine is."""
    machine = classroom(4, step=0.002, factors=[1, 1, 1, slow])
    args = name, batches(14), ahead, options
    run = dlviz.launch(held_up, 4, machine=machine, args=args)
    run.trace.validate()
    return run


def arrivals(trace):
    """The workers of the pushes, in order of arrival."""
    order = trace.only(rank=0, kind="recv").spans.peer.tolist()
    assert order[::2] == order[1::2]  # one message for each dtype
    return order[::2]


def replayed(order, data, bound):
    """The weights after these arrivals; a pull waits while its worker is too far ahead."""
    workers = sorted(set(order))
    server, pushed, waiting = Server(workers), dict.fromkeys(workers, 0), set()
    mine = {worker: data[worker - 1 :: len(workers)] for worker in workers}
    for worker in order:
        server.apply(server.gradient(worker, *mine[worker][pushed[worker]]))
        pushed[worker] += 1
        waiting.add(worker)
        at_it = [pushed[w] for w in workers if pushed[w] < len(mine[w])]
        for each in sorted(waiting):
            if pushed[each] == len(mine[each]) or pushed[each] - min(at_it) <= bound:
                server.pull(each)
                waiting.remove(each)
    return server.model.state_dict()


def replayed_with_backups(order, data, backups):
    """The weights after these arrivals, and how many of them arrived after their step."""
    workers = sorted(set(order))
    server, at, step, late, on_time = Server(workers), dict.fromkeys(workers, 0), 0, 0, []
    for worker in order:
        if at[worker] < step:
            late += 1
            at[worker] = step
            server.pull(worker)
            continue
        on_time.append(worker)
        if len(on_time) < len(workers) - backups:
            continue
        total, examples = None, 0
        for each in on_time:
            x, y = (part.tensor_split(len(workers))[each - 1] for part in data[step])
            weighted = [len(x) * g for g in server.gradient(each, x, y)]
            total = (
                weighted if total is None else [a + b for a, b in zip(total, weighted, strict=True)]
            )
            examples += len(x)
        server.apply([g / examples for g in total])
        step += 1
        for each in on_time:
            at[each] = step
            server.pull(each)
        on_time = []
    return server.model.state_dict(), late


def in_flight(trace):
    """Updates missing from the weights that each worker pulled last, by hand."""
    updates = trace.only(rank=0, kind="update").spans
    pulls = trace.messages[trace.messages.src == 0]
    last = [pulls.sent[pulls.dst == worker].max() for worker in (1, 2, 3)]
    return [int((updates.start >= sent).sum()) for sent in last]


def most_ahead(trace):
    """How far ahead of the slowest, in pushes, any worker was at the start of an iteration."""
    steps = trace.only(kind="phase").spans
    steps = steps[steps.rank > 0]
    pushes = trace.messages[trace.messages.dst == 0]
    pushed = {w: np.sort(pushes.received[pushes.src == w])[1::2] for w in (1, 2, 3)}
    ahead = 0
    for worker, start in zip(steps.rank.tolist(), steps.start.tolist(), strict=True):
        clock = {w: int((times <= start + 1e-9).sum()) for w, times in pushed.items()}
        others = [clock[w] for w in pushed if clock[w] < len(pushed[w])]
        ahead = max(ahead, clock[worker] - min(others))
    return ahead


@pytest.mark.parametrize("bound", [1, 2, math.inf])
def test_a_server_is_replayed_to_the_last_bit_from_the_order_of_arrivals(bound):
    data = batches(14)
    options = {"bound": bound} if bound < math.inf else {}
    run = trained("stale_synchronous" if options else "async_server", min(bound, 3), **options)
    order = arrivals(run.trace)
    assert sorted(order) == sorted([1, 2, 3] * 4 + [1, 2])  # whole batches, dealt in turn
    assert same_bits(run.results[0]["state"], replayed(order, data, bound))
    assert not same_bits(run.results[0]["state"], replayed(order[::-1], data, math.inf))
    assert all(
        torch.equal(other["state"][name], value)
        for other in run.results
        for name, value in run.results[0]["state"].items()
    )
    assert most_ahead(run.trace) == bound if bound < math.inf else most_ahead(run.trace) > 2
    behind = metrics.staleness(run.trace)
    assert sorted(behind["rank"].tolist()) == sorted(order)
    if bound == math.inf:
        assert behind["rank"].tolist() == order
        assert behind["staleness"].sum() + sum(in_flight(run.trace)) == 2 * 14


@pytest.mark.parametrize("slow", [1.5, 4])  # late by a step, by several
def test_late_pushes_are_dropped_and_counted_and_the_rest_replayed_to_the_last_bit(slow):
    run = trained("sync_server", 1, slow=slow, backups=1)
    order = arrivals(run.trace)
    state, late = replayed_with_backups(order, batches(14), backups=1)
    assert late == run.results[3]["dropped"] > 0
    assert len(order) == 14 * 2 + late  # pushes sent = applied + dropped
    assert same_bits(run.results[0]["state"], state)
    other, _ = replayed_with_backups(order[::-1], batches(14), 1)
    assert not same_bits(run.results[0]["state"], other)


def test_the_mean_staleness_is_one_less_than_the_workers_whether_or_not_one_is_slow():
    """With what is still in flight at the end; how old each one's are, `sim` plays."""
    for slow in (1, 3):
        machine = classroom(5, step=0.002, factors=[1, 1, 1, 1, slow])
        args, kwargs = (Mixed(), batches(20), "sgd"), {"lr": LR}
        run = dlviz.launch(STRATEGIES["async_server"], 5, machine=machine, args=args, kwargs=kwargs)
        order, found = arrivals(run.trace), metrics.staleness(run.trace)
        assert found["rank"].tolist() == order
        since = [[*order[:place][::-1], order[place]].index(order[place]) for place in range(20)]
        assert found["staleness"].tolist() == since
        assert sum(since) + sum(order[::-1].index(worker) for worker in range(1, 5)) == 3 * 20


def test_invalid_arguments_are_refused_before_training():
    def worker(comm):
        said = {}
        cases = [
            ("sync_server", {"backups": 2}),
            ("sync_server", {"backups": -1}),
            *(("stale_synchronous", {"bound": bound}) for bound in (-1, 1.5, math.nan, "2", None)),
        ]
        for name, options in cases:
            with pytest.raises(ValueError) as error:
                STRATEGIES[name](comm, Mixed(), batches(2), "sgd", **options)
            said[str(options)] = str(error.value)
        alone = comm.split(comm.rank)
        for name in ("sync_server", "async_server", "stale_synchronous"):
            with pytest.raises(ValueError, match="has a server and no worker"):
                STRATEGIES[name](alone, Mixed(), batches(2), "sgd")
        return said

    for said in dlviz.launch(worker, 3).results:
        for case, message in said.items():
            assert message.startswith(case[2:].split("'")[0] + "="), (case, message)
            assert "use 0" in message

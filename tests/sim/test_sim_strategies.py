"""Strategies as they are played: the closed forms of a slow worker, and the same on real ranks."""

from __future__ import annotations

import math

import cloudpickle
import numpy as np
import pytest
from timing import attempts

from dlviz import launch, metrics
from dlviz.analysis.applied import applied
from dlviz.machine import Chance, Device, Link, Machine, Topology
from dlviz.sim import Layer, strategy
from dlviz.sim.programs import Receive, play
from dlviz.sim.strategies import PROGRAMS, SERVED, beside_bytes, shares_batches
from dlviz.widgets.consistency import strategies as methods
from dlviz.widgets.consistency.strategies import KNOBS, machine_of, played
from dlviz.widgets.control import Choice

GRADIENT = 0.06
LAYERS = [Layer("fc1", 0.02, 0.02, 4000), Layer("fc2", 0.005, 0.015, 400)]
FREE = Link(0.0, math.inf)


def machine(workers, factors, link=FREE, served=True):
    device = Device("test", 1e9, 1e9, 1e9)
    factors = [1.0] * served + [*factors]
    return Machine(device, Topology.switch(workers + served, link), None, tuple(factors))


def one_slow(name, batches, **options):
    """Four workers, the last of them three times as slow; messages take no time."""
    trace = strategy(name, LAYERS, batches, machine(4, [1, 1, 1, 3]), **options)
    trace.validate()
    return trace


def rate(trace, since, until):
    times = applied(trace).time
    return ((times > since + 1e-9) & (times < until + 1e-9)).sum() / (until - since)


def test_a_synchronous_server_takes_the_time_of_the_slowest():
    trace = one_slow("sync_server", 10)
    assert metrics.makespan(trace) == pytest.approx(10 * 3 * GRADIENT)
    assert rate(trace, 0.18, 1.8) == pytest.approx(4 / 0.18)  # 22.2 gradients/s


def test_an_asynchronous_server_takes_every_gradient_when_it_is_there():
    trace = one_slow("async_server", 80)
    assert rate(trace, 0.18, 0.9) == pytest.approx(3 / 0.06 + 1 / 0.18)  # 55.6
    ages = applied(trace)
    steady = (ages.time > 0.18 + 1e-9) & (ages.time < 0.9 + 1e-9)
    assert ages.staleness[steady].mean() == pytest.approx(3)
    assert ages.staleness[steady & (ages.rank == 4)].mean() == pytest.approx(9)
    assert ages.staleness[steady & (ages.rank != 4)].mean() == pytest.approx(7 / 3)


def test_one_backup_worker_leaves_the_slow_one_behind():
    trace = one_slow("sync_server", 12, backups=1)
    assert rate(trace, 0.06, 0.72) == pytest.approx(50)
    gradients = applied(trace)
    assert 4 not in gradients.rank and not gradients.staleness.any()
    pushes = (trace.messages.dst == 0).sum()
    assert pushes == len(gradients) + 4  # the slow one's are dropped


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_a_worker_that_is_always_slow_holds_up_all_whatever_the_bound(bound):
    batches = 20 if bound == 0 else 80
    trace = one_slow("stale_synchronous", batches, bound=bound)
    slow = trace.only(rank=4, kind="backward").spans.end[1::2]
    others = trace.only(rank=1, kind="backward").spans.end[1::2]
    assert np.diff(slow) == pytest.approx(0.18)
    assert np.diff(others)[2 * bound + 1 : 18 - bound] == pytest.approx(0.18)


def most_ahead(trace, workers):
    """How far ahead of the slowest that still works any worker was at the start of a step."""
    steps = trace.only(kind="phase").spans
    steps = steps[steps.rank > 0]
    pushed = {w: trace.messages.received[trace.messages.src == w] for w in workers}
    ahead = 0
    for worker, start in zip(steps.rank.tolist(), steps.start.tolist(), strict=True):
        clock = {w: int((times <= start + 1e-12).sum()) for w, times in pushed.items()}
        at_it = [many for w, many in clock.items() if many < len(pushed[w])]
        ahead = max(ahead, clock[worker] - min(at_it))
    return ahead


@pytest.mark.parametrize("bound", [1, 2, 5])
def test_the_bound_is_reached_and_never_passed(bound):
    assert most_ahead(one_slow("stale_synchronous", 80, bound=bound), (1, 2, 3, 4)) == bound


def test_steps_that_are_slow_by_chance_cost_less_the_looser_the_bound():
    """Exact at the ends: 60 + 120 (1 - 0.9^4) and 60 + 120 x 0.1 ms, of operations as a whole."""
    whole = [Layer("fc", GRADIENT, 0.0, 4000)]
    took = {}
    for bound in (0, 1, 3, math.inf):
        factors = [Chance(0.1, 3, seed) for seed in range(4)]
        steps = 800
        batches = steps if bound == 0 else 4 * steps
        trace = strategy("stale_synchronous", whole, batches, machine(4, factors), bound=bound)
        pushes = trace.messages[trace.messages.dst == 0]
        last = [pushes.received[pushes.src == worker].max() for worker in (1, 2, 3, 4)]
        took[bound] = np.mean(last) / steps
    # A backward of no length draws a chance too, which changes nothing.
    assert took[0] == pytest.approx(0.06 + 0.12 * (1 - 0.9**4), rel=0.03)
    assert took[math.inf] == pytest.approx(0.072, rel=0.03)
    assert took[0] > took[1] > took[3] > took[math.inf]


@pytest.mark.parametrize(
    ("name", "options", "served"),
    [
        ("easgd", {"form": "synchronous"}, True),
        ("local_sgd", {"every": 1}, False),
        ("local_sgd", {"every": 4}, False),
        ("gossip", {"topology": "ring"}, False),
    ],
)
def test_a_step_with_a_rendezvous_is_as_long_as_the_slowest(name, options, served):
    on = machine(4, [1, 1, 1, 3], served=served)
    trace = strategy(name, LAYERS, 8, on, **options)
    trace.validate()
    assert metrics.makespan(trace) == pytest.approx(8 * 0.18)


def test_workers_that_take_turns_are_no_faster_than_one():
    trace = one_slow("easgd", 8, form="round_robin", samples=(2000, 64))
    assert metrics.makespan(trace) == pytest.approx(2 * (3 * 0.06 + 0.18))


def test_gossip_waits_for_neighbours_alone():
    """A rank that is slow once holds up its neighbours a round later than itself."""
    trace = strategy("gossip", LAYERS, 1, machine(5, [1, 1, 3, 1, 1], served=False))
    ends = [trace.only(rank=rank, kind="phase").spans.end[0] for rank in range(5)]
    assert ends == pytest.approx([0.06, 0.18, 0.18, 0.18, 0.06])


def test_a_server_takes_one_message_at_a_time_in_each_direction():
    """Four pushes together: the k-th is there after k messages; then the pulls leave in turn."""
    trace = strategy("sync_server", LAYERS, 1, machine(4, [1] * 4, Link(0.001, math.inf)))
    table = trace.messages
    assert table.received[table.dst == 0] == pytest.approx([0.061, 0.062, 0.063, 0.064])
    assert table.received[table.src == 0] == pytest.approx([0.065, 0.066, 0.067, 0.068])


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("ddp", {}, "'ddp' cannot be played"),
        ("easgd", {"form": "backwards"}, "form='backwards' cannot be played"),
    ],
)
def test_what_cannot_be_played_is_refused(name, options, says):
    with pytest.raises(ValueError, match=says):
        strategy(name, LAYERS, 4, machine(2, [1, 1]), **options)


def test_a_server_without_workers_and_links_that_ranks_share_are_refused():
    with pytest.raises(ValueError, match="a server and no worker"):
        strategy("sync_server", LAYERS, 4, machine(0, []))
    ring = Machine(Device("test", 1e9, 1e9, 1e9), Topology.ring(3, FREE), None)
    with pytest.raises(ValueError, match="messages share links"):
        strategy("sync_server", LAYERS, 4, ring)


def test_a_rank_that_waits_for_ever_is_named():
    def nothing():
        yield from ()

    def waits():
        yield Receive(0)

    with pytest.raises(ValueError, match="rank 1 waits for a message that nobody sends"):
        play([nothing(), waits()], machine(1, [1]))


def test_who_shares_a_batch_is_who_steps_together():
    shared = {name for name in PROGRAMS if shares_batches(name)}
    assert shared == {"sync_server", "local_sgd", "gossip"}
    assert shares_batches("stale_synchronous", bound=0)
    assert shares_batches("easgd", form="synchronous", alpha=0.1)
    assert not shares_batches("easgd", form="asynchronous")


def test_a_push_has_a_flag_for_each_parameter_and_one_number_besides():
    sizes = {name: beside_bytes(name, tensors=4) for name in PROGRAMS}
    pushes = dict.fromkeys(("sync_server", "async_server", "stale_synchronous"), 20)
    assert sizes == {**pushes, "easgd": 0, "gossip": 0, "local_sgd": 4}


CASES = [
    ("sync_server", {"backups": 1}, {}),
    ("async_server", {}, {"slowed": "chance"}),
    ("easgd", {"form": "round_robin"}, {}),
    ("easgd", {"form": "asynchronous"}, {}),
    ("gossip", {"topology": "ring"}, {}),
    *(
        pytest.param(*each, {}, marks=pytest.mark.sweep)
        for each in (
            ("stale_synchronous", {"bound": 1}),
            ("easgd", {"form": "synchronous"}),
            ("local_sgd", {"every": 2}),
            ("gossip", {"topology": "matching"}),
        )
    ),
]
FIRST = {
    knob.name: [*(knob.options if isinstance(knob, Choice) else knob.values)][0]
    for knobs in KNOBS.values()
    for knob in knobs
}


def operations(trace):
    """Of each rank the operations of its steps in order, with their ends from the first forward."""
    spans = trace.spans
    begin = spans.start[spans.kind == "forward"].min()
    found = {}
    for rank in range(trace.meta["ranks"]):
        own = spans[(spans.rank == rank) & (spans.step >= 0)]
        own = own[np.isin(own.kind, ["forward", "backward", "update", "send", "recv"])]
        own = own[np.argsort(own.end, kind="stable")]
        rows = zip(own.kind.tolist(), own.peer.tolist(), strict=True)
        found[rank] = list(rows), own.end - begin
    return found


def alike(run, expected):
    """Whether each rank did what was expected when it was expected."""
    return all(
        own == expected[rank][0] and ends == pytest.approx(expected[rank][1], rel=0.001, abs=1e-4)
        for rank, (own, ends) in operations(run).items()
    )


BRIEF = 5  # gradients of a worker: two rounds of local SGD, and the start of a third
IN_TURN = ({"form": "round_robin"}, {"every": 2}, {"topology": "ring"}, {"topology": "matching"})


@pytest.fixture
def brief(monkeypatch):
    """Few gradients, on ranks too: what trains goes to them by value, and they load no widgets."""
    monkeypatch.setattr(methods, "STEPS", BRIEF)
    cloudpickle.register_pickle_by_value(methods)
    yield
    cloudpickle.unregister_pickle_by_value(methods)


def paced(values, expected):
    """A run that went as expected. On a busy machine a rank may be so late that two pushes half a
    millisecond apart come in the other order."""
    for attempt in attempts():
        on = machine_of(values)
        trace = launch(methods.train, on.ranks, machine=on, args=(values,)).trace
        with attempt:
            assert alike(trace, expected), (trace.meta["lateness"], operations(trace), expected)
    return trace


@pytest.mark.slow
@pytest.mark.parametrize(("method", "own", "more"), CASES, ids=str)
@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine
def test_a_paced_run_goes_as_it_was_played(method, own, more, brief, monkeypatch):
    if own in IN_TURN:  # nobody takes what comes first: no delay of a rank changes an order
        monkeypatch.setattr(methods, "FLOPS", 3 * methods.FLOPS)
    values = {"method": method, "workers": 4, "slow": 2.5, "slowed": "one", **FIRST, **own, **more}
    expected = played(values)
    expected.validate()
    rows = operations(expected)
    run = paced(values, rows)
    measured, simulated = applied(run), applied(expected)
    if method in SERVED:  # who comes first is the server's doing
        assert measured.rank.tolist() == simulated.rank.tolist()
        assert measured.staleness.tolist() == simulated.staleness.tolist()
    assert len(measured) == len(simulated)

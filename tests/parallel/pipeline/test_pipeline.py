"""Pipelines on real ranks against one process of plain torch on the whole batch."""

import random
import re
import time
from functools import cache
from itertools import product

import pytest
import torch
from timing import attempts
from torch import nn
from torch.nn import functional

import dlviz
from dlviz import metrics, schedules
from dlviz.analysis.columns import ACTIONS
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.parallel.pipeline import infer, train, train_step
from dlviz.schedules import Action, Schedule, needs, overlap

FLUSHING = [name for name in schedules.NAMES if name not in ("pipedream", "inference")]
WIDTH = 5
NO_LATENCY = Link(0.0, 1e30)


class Block(nn.Module):
    """A layer used twice, an in-place ReLU (also on the stage's input), a residual, a parameter
    that nothing uses and one that is frozen."""

    def __init__(self):
        super().__init__()
        self.once, self.twice = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.relu = nn.LeakyReLU(0.3, inplace=True)
        self.unused = nn.Parameter(torch.randn(3))
        self.frozen = nn.Parameter(torch.randn(WIDTH), requires_grad=False)

    def forward(self, x):
        h = self.relu(x)
        h = h + self.twice(self.relu(self.once(h))) * self.frozen
        return self.twice(h)


def network(stages, seed=0):
    torch.manual_seed(seed)
    return [Block().double() for _ in range(stages)]


def data(rows):
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(2, rows, WIDTH, generator=generator, dtype=torch.float64)


def one_process(stages, x, y, loss=functional.mse_loss):
    """The loss and the gradients of all stages of plain torch on the whole batch."""
    value = loss(nn.Sequential(*stages)(x.clone()), y)
    value.backward()
    return value.item()


def gap(stages, reference):
    """The largest difference of a gradient; infinite where one has a gradient and one has none."""
    worst = 0.0
    for stage, other in zip(stages, reference, strict=True):
        for p, q in zip(stage.parameters(), other.parameters(), strict=True):
            if (p.grad is None) != (q.grad is None):
                return float("inf")
            if p.grad is not None:
                worst = max(worst, (p.grad - q.grad).abs().max().item())
    return worst


def compare(comm, cases):
    """For each schedule the errors of loss and of this rank's gradients against one process."""
    gaps = []
    for schedule in cases:
        x, y = data(3 * schedule.microbatches)
        stages, reference = (network(len(schedule.stage_rank)) for _ in range(2))
        loss = train_step(comm, stages, schedule, x, y, functional.mse_loss)
        expected = one_process(reference, x, y)
        mine = [i for i, rank in enumerate(schedule.stage_rank) if rank == comm.rank]
        others = [i for i, rank in enumerate(schedule.stage_rank) if rank != comm.rank]
        assert all(p.grad is None for i in others for p in stages[i].parameters())
        worst = gap([stages[i] for i in mine], [reference[i] for i in mine])
        gaps.append(max(worst, abs(loss - expected)))
    return gaps


MICROBATCHES = (1, 3, 4, 8)


def zoo(ranks, many=MICROBATCHES):
    """Every flushing schedule that is defined for these ranks, m from 1 to 8, v from 1 to 3."""
    found = []
    for name in FLUSHING:
        loops = name in ("interleaved", "looped_bfs", "interleaved_zb")
        for microbatches in many:
            for chunks in (None, 3) if loops else (None,):
                try:
                    found.append(schedules.make(name, ranks, microbatches, chunks))
                except ValueError:
                    continue
    return found


@pytest.mark.parametrize(
    ("ranks", "many"),
    [
        (1, MICROBATCHES),
        (3, (1, 3, 8)),
        (4, (4, 8)),
        *(pytest.param(n, MICROBATCHES, marks=pytest.mark.sweep) for n in (2, 3, 4)),
    ],
)
def test_loss_and_gradients_of_every_flushing_schedule_equal_one_process(ranks, many):
    cases = zoo(ranks, many)
    assert {schedule.name for schedule in cases} == set(FLUSHING)
    for gaps in dlviz.launch(compare, ranks=ranks, args=(cases,)).results:
        found = {repr(case): gap for case, gap in zip(cases, gaps, strict=True)}
        assert max(found.values()) < 1e-12, found


def drawn(seed, ranks):
    """An unusual legal schedule: stages anywhere, each backward whole or split, and
    at each turn any action that can run, or any two as an overlap."""
    dice = random.Random(seed)
    stages, microbatches = ranks + dice.randrange(4), dice.randrange(1, 5)
    stage_rank = [*range(ranks), *(dice.randrange(ranks) for _ in range(stages - ranks))]
    dice.shuffle(stage_rank)
    left = []
    for stage in range(stages):
        for microbatch in range(microbatches):
            kinds = dice.choice(["FB", "FIW"])
            left += [Action(stage, kind, microbatch) for kind in kinds]
    rows, done = [[] for _ in range(ranks)], set()

    def ready(action):
        return all(any(one in done for one in any_of) for any_of in needs(action, stages))

    while left:
        able = [action for action in left if ready(action)]
        action = dice.choice(able)
        partners = [
            other
            for other in able
            if stage_rank[other.stage] == stage_rank[action.stage]
            and "".join(sorted(other.kind + action.kind)) in ("BF", "FI")
        ]
        if partners and dice.random() < 0.3:
            action = overlap(action, dice.choice(partners))
        rows[stage_rank[action.halves[0].stage]].append(action)
        done.update(action.halves)
        left = [one for one in left if one not in action.halves]
    return Schedule(rows, tuple(stage_rank), f"drawn {seed}")


@pytest.mark.parametrize("seeds", [12, pytest.param(25, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("ranks", [2, 3])
def test_any_legal_order_finishes_and_equals_one_process(ranks, seeds):
    cases = [drawn(seed, ranks) for seed in range(seeds)]
    assert any(action.parts for case in cases for row in case.actions for action in row)
    for gaps in dlviz.launch(compare, ranks=ranks, args=(cases,), timeout=30).results:
        assert max(gaps) < 1e-12, dict(zip(map(str, cases), gaps, strict=True))


def many_steps(comm, schedule, batches):
    """Gradients add up over steps on batches of other shapes, as `backward()` adds them up."""
    stages, reference = (network(len(schedule.stage_rank)) for _ in range(2))
    for rows in batches:
        x, y = data(rows)
        train_step(comm, stages, schedule, x, y, functional.mse_loss)
        one_process(reference, x, y)
    mine = [i for i, rank in enumerate(schedule.stage_rank) if rank == comm.rank]
    return gap([stages[i] for i in mine], [reference[i] for i in mine])


def test_gradients_add_up_over_steps_whatever_the_shapes():
    def worker(comm):
        made = (schedules.make(name, 2, 4) for name in ("1f1b", "zbv"))
        return [many_steps(comm, one, [4, 12, 8, 4, 12]) for one in made]

    for both in dlviz.launch(worker, ranks=2).results:
        assert max(both) < 1e-12


def with_tied(comm, schedule, optimize):
    stages, reference = (network(len(schedule.stage_rank)) for _ in range(2))
    for layers in (stages, reference):
        layers[-1].twice.weight = layers[0].twice.weight  # on two ranks
        layers[-1].once.weight = layers[1].once.weight  # on two others, or on one
        layers[1].once.bias = layers[0].once.bias = layers[-1].once.bias  # on all
    mine = [i for i, rank in enumerate(schedule.stage_rank) if rank == comm.rank]
    worst = 0.0
    for _ in range(3):
        x, y = data(8)
        train_step(comm, stages, schedule, x, y, functional.mse_loss)
        one_process(reference, x, y)
        worst = max(worst, gap([stages[i] for i in mine], [reference[i] for i in mine]))
        if optimize:
            for layers in ([stages[i] for i in mine], reference):
                parameters = {p: None for layer in layers for p in layer.parameters()}
                optimizer = torch.optim.SGD(parameters, lr=0.01)
                optimizer.step()
                optimizer.zero_grad()
    return worst


TIED = [schedules.make(name, 3, 4) for name in ("gpipe", "zb_h1", "zbv")]


@cache
def every_tied():
    """What each rank found, a dict by name and whether it trained."""
    return dlviz.launch(
        lambda comm: {
            (one.name, optimize): with_tied(comm, one, optimize)
            for one, optimize in product(TIED, (False, True))
        },
        ranks=3,
    ).results


@pytest.mark.parametrize("schedule", TIED, ids=lambda schedule: schedule.name)
@pytest.mark.parametrize("optimize", [False, True], ids=["added up", "trained"])
def test_a_parameter_shared_by_stages_of_several_ranks_gets_the_sum_of_their_gradients(
    schedule, optimize
):
    assert max(result[schedule.name, optimize] for result in every_tied()) < 1e-12


def versions(comm, schedule, steps, momentum):
    """A rank's stages after `steps` of a schedule that does not flush, the losses, and the most
    versions of weights that it stored."""
    stages = network(len(schedule.stage_rank))
    mine = [i for i, rank in enumerate(schedule.stage_rank) if rank == comm.rank]
    parameters = [p for i in mine for p in stages[i].parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=momentum)
    x, y = data(2 * schedule.microbatches)
    losses = [
        train_step(comm, stages, schedule, x, y, functional.mse_loss, optimizer)
        for _ in range(steps)
    ]
    return losses, {i: dict(stages[i].named_parameters()) for i in mine}


def replayed(schedule, steps, momentum):
    """The same in one process: each microbatch goes through the versions that the rows dictate."""
    stages = network(len(schedule.stage_rank))
    history = [[{k: p.detach().clone() for k, p in s.named_parameters()}] for s in stages]
    speed = [{k: torch.zeros_like(p) for k, p in s.named_parameters()} for s in stages]
    x, y = data(2 * schedule.microbatches)
    losses = []
    for _ in range(steps):
        before = len(history[0]) - 1
        total = 0.0
        for k in range(schedule.microbatches):
            seen = []
            for stage, rank in enumerate(schedule.stage_rank):
                row = [half for action in schedule.actions[rank] for half in action.halves]
                until = row[: row.index(Action(stage, "F", k))]
                updates = sum(half.stage == stage and half.kind in "BW" for half in until)
                version = history[stage][before + updates]
                seen.append({key: w.clone().requires_grad_() for key, w in version.items()})
            out = x[2 * k : 2 * k + 2].clone()
            for stage, weights in zip(stages, seen, strict=True):
                out = torch.func.functional_call(stage, weights, (out,))
            loss = functional.mse_loss(out, y[2 * k : 2 * k + 2])
            loss.backward()
            total += loss.item()
            for stage, weights in enumerate(seen):
                new = dict(history[stage][-1])
                for key, w in weights.items():
                    if w.grad is not None and key != "frozen":
                        speed[stage][key] = momentum * speed[stage][key] + w.grad
                        new[key] = new[key] - 0.1 * speed[stage][key]
                history[stage].append(new)
        losses.append(total / schedule.microbatches)
    return losses, [versions[-1] for versions in history]


def never_flushing(name, ranks, microbatches):
    made = schedules.make(name, ranks, microbatches)
    return Schedule(made.actions, made.stage_rank, made.name, flushes=False)


@pytest.mark.parametrize(
    "schedule",
    [
        schedules.make("pipedream", 1, 3),
        schedules.make("pipedream", 3, 7),
        schedules.make("pipedream", 3, 2),
        never_flushing("zb_h1", 3, 5),
        never_flushing("interleaved", 2, 4),
    ],
    ids=repr,
)
def test_without_a_flush_each_backward_uses_the_weights_of_its_forward(schedule):
    def worker(comm):
        return [versions(comm, schedule, 2, momentum) for momentum in (0.0, 0.9)]

    results = dlviz.launch(worker, ranks=schedule.ranks).results
    for found, momentum in zip(zip(*results, strict=True), (0.0, 0.9), strict=True):
        losses, expected = replayed(schedule, 2, momentum)
        for its_losses, stages in found:
            assert its_losses == pytest.approx(losses, rel=1e-12)
            for stage, weights in stages.items():
                for key, w in weights.items():
                    torch.testing.assert_close(w.data, expected[stage][key], rtol=0, atol=1e-12)


def test_pipedream_stores_at_most_p_minus_r_versions_of_the_weights():
    ranks = 4
    trace = dlviz.launch(
        versions, ranks=ranks, args=(schedules.make("pipedream", ranks, 9), 1, 0.0)
    ).trace
    one = 8 * sum(p.numel() for p in network(1)[0].parameters() if p.requires_grad)
    memory = trace.memory[trace.memory.what == "weights"]
    for rank in range(ranks):
        assert memory.nbytes[memory.rank == rank].max() == (ranks - rank) * one


def outputs(comm, cases):
    gaps = []
    for schedule in cases:
        stages, (x, _) = network(len(schedule.stage_rank)), data(3 * schedule.microbatches)
        whole = infer(comm, stages, schedule, x)
        assert not whole.requires_grad
        gaps.append((whole - nn.Sequential(*stages)(x.clone())).abs().max().item())
    return gaps


@pytest.mark.parametrize("ranks", [1, 3])
def test_inference_gives_every_rank_the_outputs_of_one_process(ranks):
    cases = [schedules.make("inference", ranks, m) for m in (1, 2, 7)]
    cases += [schedules.make(name, ranks, 6) for name in ("gpipe", "zbv", "dualpipev")]
    for gaps in dlviz.launch(outputs, ranks=ranks, args=(cases,)).results:
        assert max(gaps) < 1e-12


def language_model(comm, schedule):
    """Words in, and a loss that a cell defines."""

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(WIDTH, 11, dtype=torch.float64)

        def forward(self, h):
            return self.out(h.tanh()).flatten(0, 1)

    def loss(output, target):
        return functional.cross_entropy(output, target.flatten()) + output.square().mean()

    def build():
        torch.manual_seed(3)
        lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True, dtype=torch.float64)

        class Recurrent(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm = lstm

            def forward(self, x):
                return self.lstm(x)[0]

        embedding = nn.Embedding(11, WIDTH, dtype=torch.float64)
        last = Last()
        last.out.weight = embedding.weight  # tied: input words and output words
        return [nn.Identity(), nn.Sequential(embedding, Block().double()), Recurrent(), last]

    words = torch.randint(11, (6, 4), generator=torch.Generator().manual_seed(1))
    stages, reference = build(), build()
    value = train_step(comm, stages, schedule, words, words.roll(1, 1), loss)
    expected = one_process(reference, words, words.roll(1, 1), loss)
    mine = [i for i, rank in enumerate(schedule.stage_rank) if rank == comm.rank]
    worst = gap([stages[i] for i in mine], [reference[i] for i in mine])
    return max(worst, abs(value - expected))


def test_a_model_and_a_loss_of_a_cell_with_words_as_input_between_stages():
    def worker(comm):
        return [language_model(comm, schedules.make(name, 4, 3)) for name in ("1f1b", "zb_h1")]

    for both in dlviz.launch(worker, ranks=4).results:
        assert max(both) < 1e-12


# -- what a run leaves ---------------------------------------------------------------------------
def traced(comm, schedule, costs=None, steps=1, slow=0.0):
    torch.manual_seed(0)
    stages = [nn.Linear(8, 8) for _ in schedule.stage_rank]
    x = torch.randn(2 * schedule.microbatches, 8)

    def late(module, args):
        time.sleep(slow)

    if slow and comm.rank == 1:
        stages[1].register_forward_pre_hook(late)
    comm.barrier()
    for step in range(steps):
        with comm.span("step", step=step):
            train_step(comm, stages, schedule, x, x, functional.mse_loss, costs=costs)


def ran(trace, rank):
    """The actions of a rank in the order of their spans."""
    spans = trace.only(rank=rank, kind=metrics.COMPUTE).spans
    kinds = dict(zip(ACTIONS, "FBIW", strict=True))
    rows = sorted(range(len(spans)), key=lambda i: (spans.wall_end[i], spans.lane[i]))
    return [
        Action(int(spans.stage[i]), kinds[spans.kind[i]], int(spans.microbatch[i])) for i in rows
    ]


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb_h2", "zbv", "dualpipev"])
def test_the_spans_of_a_run_are_the_schedules_actions_with_the_messages_they_waited_for(name):
    schedule = schedules.make(name, 2, 4)
    trace = dlviz.launch(traced, ranks=2, args=(schedule,)).trace
    predicted = dlviz.simulate(schedule)
    for rank, row in enumerate(schedule.actions):
        assert ran(trace, rank) == [half for action in row for half in action.halves]
    fields = ("rank", "kind", "stage", "microbatch")

    def flows(trace):
        spans = trace.only(kind=metrics.COMPUTE).spans
        found = {}
        for i in range(len(spans)):
            flow = int(spans.flow[i])
            ends = None
            if flow >= 0:
                ends = int(trace.messages.src[flow]), int(trace.messages.dst[flow])
            found[tuple(spans[field][i] for field in fields)] = ends
        return found

    assert flows(trace) == flows(predicted)
    assert len(trace.only(kind=metrics.COMPUTE).spans) == len(predicted.spans)


def test_halves_of_an_overlap_lie_on_two_lanes_over_the_same_interval():
    schedule = schedules.make("dualpipev", 2, 4)
    spans = dlviz.launch(traced, ranks=2, args=(schedule,)).trace.only(kind=metrics.COMPUTE).spans
    for rank, row in enumerate(schedule.actions):
        both = [action for action in row if action.parts]
        second = (spans.rank == rank) & (spans.lane == "compute2")
        assert both and second.sum() == len(both)
        for action in both:
            one, other = (
                next(
                    i
                    for i in range(len(spans))
                    if (spans.stage[i], spans.microbatch[i]) == (half.stage, half.microbatch)
                    and (spans.kind[i] == "forward") == (half.kind == "F")
                )
                for half in action.parts
            )
            assert (spans.lane[one], spans.lane[other]) == ("compute", "compute2")
            assert spans.wall_start[other] <= spans.wall_start[one]
            assert spans.wall_end[one] <= spans.wall_end[other]


def test_a_microbatch_crosses_each_border_twice():
    p, m = 3, 4
    trace = dlviz.launch(traced, ranks=p, args=(schedules.make("1f1b", p, m),)).trace
    sizes = trace.messages.nbytes.tolist()
    assert sizes.count(2 * 8 * 4) == 2 * (p - 1) * m
    assert sizes.count(8) == len(sizes) - 2 * (p - 1) * m == p - 1  # the loss


def test_activations_held_are_those_of_the_microbatches_in_flight():
    p, m = 4, 6
    for name, most in (("gpipe", [m] * p), ("1f1b", [p - r for r in range(p)])):
        trace = dlviz.launch(traced, ranks=p, args=(schedules.make(name, p, m),)).trace
        for rank in range(p):
            held = trace.memory.nbytes[trace.memory.rank == rank]
            # Input and output; behind the first stage a copy to work on; for the loss the target.
            assert held[0] == (2 + (rank > 0) + (rank == p - 1)) * 2 * 8 * 4  # bytes
            assert held.max() == most[rank] * held[0]
            assert held[-1] == 0


# -- time ----------------------------------------------------------------------------------------
def machine(ranks, step=0.005):
    return Machine(classroom(ranks).device, Topology.switch(ranks, NO_LATENCY), step)


@pytest.mark.filterwarnings("ignore:the run")
def test_on_a_paced_run_costs_price_actions_and_overlaps():
    schedule = schedules.make("dualpipev", 2, 5)
    costs = dlviz.Costs(
        forward=[0.002, 0.003, 0.002, 0.004], backward_input=0.004, overlapped=0.006
    )
    costs = dlviz.Costs(**{**vars(costs), "backward_weight": 0.001})
    trace = dlviz.launch(traced, ranks=2, machine=machine(2), args=(schedule, costs)).trace
    predicted = dlviz.simulate(schedule, costs)
    assert metrics.bubble_ratio(trace) == pytest.approx(metrics.bubble_ratio(predicted), rel=1e-6)
    for one in (trace, predicted):
        spans = one.only(kind=metrics.COMPUTE).spans
        one.took = {
            (spans.kind[i], int(spans.stage[i]), int(spans.microbatch[i])): spans.end[i]
            - spans.start[i]
            for i in range(len(spans))
        }
    assert trace.took == pytest.approx(predicted.took)


@pytest.mark.filterwarnings("ignore:the run")
@pytest.mark.parametrize("name", ["gpipe", "zb_h1", "interleaved"])
def test_a_paced_run_has_the_simulators_device_times(name):
    schedule = schedules.make(name, 3, 6)
    trace = dlviz.launch(traced, ranks=3, machine=machine(3), args=(schedule,)).trace
    expected = metrics.bubble_ratio(dlviz.simulate(schedule))
    assert metrics.bubble_ratio(trace) == pytest.approx(expected, rel=1e-6)


@pytest.mark.filterwarnings("ignore:the run")
def test_the_measured_bubble_grows_where_a_rank_is_slowed():
    args = schedules.make("gpipe", 2, 4), None, 1, 0.03
    for attempt in attempts():
        trace = dlviz.launch(traced, ranks=2, machine=machine(2), args=args).trace
        with attempt:
            assert metrics.bubble_ratio(trace, "wall") > metrics.bubble_ratio(trace) + 0.1


# -- what goes wrong -----------------------------------------------------------------------------
def broken(comm, when):
    class Breaks(nn.Linear):
        def forward(self, x):
            if when == "forward" and comm.rank == 1:
                raise ArithmeticError("no such number")
            y = super().forward(x)
            if when == "backward" and comm.rank == 1:
                y.register_hook(lambda gradient: 1 / 0)
            return y

    stages = [Breaks(4, 4) for _ in range(3)]
    x = torch.randn(6, 4)
    train_step(comm, stages, schedules.make("1f1b", 3, 6), x, x, functional.mse_loss)


@pytest.mark.parametrize(
    ("when", "what"), [("forward", "no such number"), ("backward", "division by zero")]
)
def test_a_stage_that_fails_on_one_rank_ends_the_run_with_its_error(when, what):
    with pytest.raises(dlviz.RankError, match=what) as raised:
        dlviz.launch(broken, ranks=3, args=(when,), timeout=30)
    assert raised.value.rank == 1


def at_odds(comm, mine, theirs):
    schedule = theirs if comm.rank == 1 else mine
    stages = [nn.Linear(4, 4) for _ in range(2)]
    x = torch.randn(8, 4)
    train_step(comm, stages, schedule, x, x, functional.mse_loss)


def test_ranks_with_schedules_of_other_sizes_end_with_an_error_and_do_not_hang():
    mine, theirs = schedules.make("gpipe", 2, 4), schedules.make("gpipe", 2, 8)
    begun = time.monotonic()
    with pytest.raises(dlviz.RunError):
        dlviz.launch(at_odds, ranks=2, args=(mine, theirs), timeout=30)
    assert time.monotonic() - begun < 15


def step_with(comm, schedule, stages=2, rows=8, targets=None, loss=functional.mse_loss, costs=None):
    x = torch.randn(rows, 4)
    y = torch.randn(rows if targets is None else targets, 4)
    train_step(comm, [nn.Linear(4, 4) for _ in range(stages)], schedule, x, y, loss, costs=costs)


def tied_without_flush(comm, schedule):
    layer = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    x = torch.randn(8, 4)
    train_step(comm, [layer, layer], schedule, x, x, functional.mse_loss, optimizer)


def two_tensors(comm, schedule):
    x = torch.randn(8, 4)
    stages = [nn.LSTM(4, 4), nn.Linear(4, 4)]
    train_step(comm, stages, schedule, x, x, functional.mse_loss)


GPIPE = schedules.make("gpipe", 2, 4)


# What is refused on every rank before anything is computed.
REFUSED = [
    (step_with, {"schedule": GPIPE, "rows": 6}, "a batch of 6 cannot be cut into 4 equal"),
    (step_with, {"schedule": GPIPE, "rows": 0}, "a batch of 0 cannot be cut into 4 equal"),
    (step_with, {"schedule": GPIPE, "targets": 4}, "has 8 inputs and 4 targets"),
    (step_with, {"schedule": GPIPE, "stages": 3}, "has 2 stages and 3 were given"),
    (step_with, {"schedule": schedules.make("gpipe", 3, 4)}, "is for 3 ranks and world has 2"),
    (step_with, {"schedule": schedules.make("inference", 2, 4)}, "has no backwards to train"),
    (step_with, {"schedule": schedules.make("pipedream", 2, 4)}, "give optimizer=, of the"),
    (tied_without_flush, {"schedule": schedules.make("pipedream", 2, 4)}, "2 parameters are"),
    (
        step_with,
        {"schedule": GPIPE, "costs": dlviz.Costs(forward=[1.0, 1.0, 1.0])},
        "forward has 3 costs and the schedule 2 stages",
    ),
    (
        step_with,
        {"schedule": Schedule([GPIPE.actions[0][::-1], GPIPE.actions[1]], (0, 1))},
        "rank 0 stops before its 1st action, 0B3: it needs 0F3 and 1B3",
    ),
]


@pytest.fixture(scope="module")
def refusals():
    """The error of each refusal on each rank, one after the other."""

    def worker(comm):
        said = {}
        for attempt, arguments, words in REFUSED:
            try:
                attempt(comm, **arguments)
            except ValueError as error:
                said[words] = str(error)
        return said

    return dlviz.launch(worker, ranks=2, timeout=30).results


@pytest.mark.parametrize("words", [words for *_, words in REFUSED])
def test_what_does_not_fit_together_is_refused_in_one_sentence_on_every_rank(refusals, words):
    for said in refusals:
        assert re.search(words, said[words])
        assert said[words].endswith(".") and "\n" not in said[words]


@pytest.mark.parametrize(
    ("worker", "arguments", "words"),
    [
        (two_tensors, {"schedule": GPIPE}, "stage 0 gave a tuple: a stage takes one tensor"),
        (
            step_with,
            {"schedule": GPIPE, "loss": lambda output, target: output - target},
            r"the loss has shape \(2, 4\): make it one number",
        ),
    ],
    ids=["tuple", "loss"],
)
def test_what_a_stage_or_a_loss_cannot_give_is_refused_in_one_sentence(worker, arguments, words):
    with pytest.raises(dlviz.RankError, match=words) as raised:
        dlviz.launch(worker, ranks=2, kwargs=arguments, timeout=30)
    first = str(raised.value).splitlines()[0]
    assert "Error: " in first and first.endswith(".")


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "pipedream"])
def test_training_by_a_schedule_equals_one_process(name):
    """Of several steps for a schedule that flushes; by one step, whose batch is one microbatch,
    for one that updates after each backward."""
    flushes = name != "pipedream"
    schedule = schedules.make(name, 2, 4 if flushes else 1)
    stages, alone = (network(len(schedule.stage_rank)) for _ in range(2))
    x, y = data(8)
    how = {"schedule": schedule, "loss": functional.mse_loss, "lr": 0.05}
    run = dlviz.launch(train, 2, args=(stages, [(x, y)] * 3), kwargs=how)

    optimizer = torch.optim.SGD([p for stage in alone for p in stage.parameters()], lr=0.05)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        losses.append(one_process(alone, x, y))
        if not losses[1:]:
            first = [[p.grad for p in stage.parameters()] for stage in alone]
            first = [[None if g is None else g.clone() for g in own] for own in first]
        optimizer.step()
    assert not run.results[1]["state"]
    nn.Sequential(*stages).load_state_dict(run.results[0]["state"])
    for mine, its in zip(stages, alone, strict=True):
        for p, expected in zip(mine.parameters(), its.parameters(), strict=True):
            torch.testing.assert_close(p, expected, rtol=0, atol=1e-12)
    for rank, result in enumerate(run.results):
        mine = [i for i, on in enumerate(schedule.stage_rank) if on == rank]
        torch.testing.assert_close(result["losses"], losses, rtol=1e-12, atol=1e-12)
        expected = [p.detach() for i in mine for p in alone[i].parameters()]
        torch.testing.assert_close(result["parameters"], expected, rtol=0, atol=1e-12)
        if flushes:
            gradients = [g for i in mine for g in first[i]]
            for a, b in zip(result["gradients"], gradients, strict=True):
                assert (a is None) == (b is None)
                assert a is None or (a - b).abs().max() < 1e-12
    assert len(dlviz.metrics.step_seconds(run.trace, "wall")) == 3

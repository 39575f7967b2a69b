"""One model on a mesh of three axes against one process of the plain one: losses, every gradient
and the weights."""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional

import dlviz
from dlviz.models import Transformer, seed_layers
from dlviz.parallel import hybrid, update_rules
from dlviz.parallel.tensor import ParallelMLP

H, HEADS, V, S = 24, 24, 48, 24
STEPS = 20
SEVERAL = 6  # steps, of which two have each number of rows
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
SCHEDULES = ["1f1b", "zb_h1", "gpipe", "interleaved"]
OPTIONS = "schedule", "dtype", "clip", "sequence_parallel", "drawn", "overlap"
# dp x pp x tp with its schedule, by ranks: each length of each axis beside another axis that is
# cut, each schedule beside dp and beside tp.
TESTED = {
    8: [
        ((1, 2, 4), "zb_h1"), ((1, 4, 2), "gpipe"), ((2, 2, 2), "interleaved"),
        ((2, 2, 2), "1f1b"), ((2, 4, 1), "gpipe"), ((4, 1, 2), "1f1b"), ((4, 2, 1), "zb_h1"),
    ],
    6: [((1, 3, 2), "1f1b")],
}  # fmt: skip


class Case(NamedTuple):
    """A mesh, and how it trains. `rows` are those of each batch, in turn; `kv_heads` heads of keys
    and values."""

    dp: int
    pp: int
    tp: int
    schedule: str = "1f1b"
    dtype: torch.dtype = torch.float64
    clip: float | None = 0.3
    steps: int = STEPS
    rows: tuple[int, ...] = (8, 7)
    dropout: float = 0.1
    kv_heads: int = 24
    sequence_parallel: bool = False
    order: tuple[str, ...] = ("dp", "pp", "tp")
    drawn: bool = True
    overlap: bool = False

    @property
    def layers(self):
        return max(2, self.pp * (2 if self.schedule == "interleaved" and self.pp > 1 else 1))

    @property
    def microbatches(self):
        return max(2, self.pp)


def meshes(ranks):
    sizes = [n for n in range(1, ranks + 1) if ranks % n == 0]
    return [
        each for each in itertools.product(sizes, repeat=3) if each[0] * each[1] * each[2] == ranks
    ]


def thinned(ranks):
    """Each mesh once, with the schedules and other hard options spread over them. The second batch
    has no row for a replica."""
    for place, (dp, pp, tp) in enumerate(meshes(ranks)):
        yield Case(
            dp, pp, tp, SCHEDULES[(place + ranks) % 4],
            dtype=torch.float32 if place % 4 == 3 else torch.float64,
            clip=None if place % 4 == 2 else 0.3,
            rows=(dp * 2 - 1, max(dp - 1, 1), dp * 2),
            kv_heads=(24, 2, 6)[place % 3] if ranks == 8 else (24, 3, 6)[place % 3],
            sequence_parallel=tp > 1 and place % 3 == 1,
            order=(("dp", "pp", "tp"), ("tp", "dp", "pp"), ("pp", "tp", "dp"))[place % 3],
            drawn=place % 2 == 0,
            overlap=dp > 1 and place % 2 == 1,
        )  # fmt: skip


def by_pairs(ranks):
    """What `make test` runs: of `thinned` the meshes of TESTED, one of them for SEVERAL steps, the
    others for two."""
    of = {case[:3]: case for case in thinned(ranks)}
    for mesh, schedule in TESTED[ranks]:
        dtype = torch.float32 if schedule == "interleaved" else of[mesh].dtype
        steps = SEVERAL if (mesh, schedule) == ((2, 2, 2), "1f1b") else 2
        yield of[mesh]._replace(schedule=schedule, dtype=dtype, steps=steps)


def pairs_of(case):
    """Each two of the values that `grid` combines."""
    values = case[:3], *(getattr(case, name) for name in OPTIONS)
    return {*itertools.combinations(enumerate(values), 2)}


def grid(ranks):
    """Enough cases that each two compatible values occur together in one: a mesh and a schedule,
    sequence parallelism and float32."""
    every = []
    no_or_yes = 3 * [(False, True)]
    for sizes, schedule, dtype, (clip, dropout), cut, drawn, overlap in itertools.product(
        meshes(ranks), SCHEDULES, TOLERANCE, [(None, 0.0), (0.3, 0.1)], *no_or_yes
    ):
        if (sizes[2] > 1 or not cut) and (sizes[0] > 1 or not overlap):
            more = {"sequence_parallel": cut, "drawn": drawn, "overlap": overlap}
            every.append(Case(*sizes, schedule, dtype, clip, dropout=dropout, **more))
    pairs = {case: pairs_of(case) for case in every}
    missing = set().union(*pairs.values())
    while missing:
        case = max(every, key=lambda case: len(pairs[case] & missing))
        missing -= pairs[case]
        yield case


def plain(case):
    sizes = case.layers, H, HEADS, V, S, case.kv_heads, case.dropout
    return Transformer(*sizes, seed=5).to(case.dtype)


@lru_cache
def batches(steps, rows):
    """No two rows alike, and as many targets in no two; token 0 is a word."""
    generator, found = torch.Generator().manual_seed(1), []
    for step in range(steps):
        tokens = torch.randint(0, V, (rows[step % len(rows)], S + 1), generator=generator)
        targets = tokens[:, 1:].clone()
        for row, text in enumerate(targets):
            text[max(1, S - 1 - (5 * row + step) % S) :] = -100
        targets[0, 0] = targets[-1, 0] = 0
        found.append((tokens[:, :-1], targets))
    return found


def worker(comm, cases):
    found = []
    for case in cases:
        with torch.device("meta" if case.drawn else "cpu"):
            model = plain(case)
        options: Any = {name: getattr(case, name) for name in ("dp", "pp", "tp", "order")}
        options |= {name: getattr(case, name) for name in ("schedule", "microbatches")}
        options |= {"sequence_parallel": case.sequence_parallel, "bucket_bytes": 2**12}
        texts = batches(case.steps, case.rows)
        options["overlap"] = case.overlap
        trained = hybrid.train(comm, model, texts, "momentum", lr=0.1, clip=case.clip, **options)
        assert not any(p.numel() for p in model.parameters() if not p.is_meta)
        with torch.device("meta" if case.drawn else "cpu"):
            model = plain(case)
        options["overlap"] = not case.overlap
        # One step of SGD at rate 1 moves each weight by its gradient.
        moved = hybrid.train(comm, model, texts[1:2], lr=1.0, **options)
        found.append((trained, moved["state"]))
    return found


def loss_of(logits, targets):
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


@lru_cache
def one_process(case):
    """The losses and the state after all steps, and the gradients of batch 1 at the start."""
    model, texts = plain(case), batches(case.steps, case.rows)
    loss_of(model(texts[1][0]), texts[1][1]).backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    model = plain(case)
    rule, parameters, losses = update_rules.make("momentum", 0.1), list(model.parameters()), []
    for tokens, targets in texts:
        model.zero_grad()
        loss = loss_of(model(tokens), targets)
        loss.backward()
        if case.clip:
            nn.utils.clip_grad_norm_(parameters, case.clip)
        losses.append(loss.item())
        rule.step(parameters, [p.grad for p in parameters])
    return losses, model.state_dict(), gradients


def compare(ranks, cases):
    run = dlviz.launch(worker, ranks, args=(cases,), timeout=1200)
    run.trace.validate()
    for number, case in enumerate(cases):
        names = "order", "sequence_parallel", "drawn", "overlap"
        kinds = {name: Case._field_defaults[name] for name in names}
        same = case._replace(dp=1, tp=1, **kinds)  # without what one process ignores
        losses, state, gradients = one_process(same)
        within, start = TOLERANCE[case.dtype], plain(case).state_dict()
        for rank, results in enumerate(run.results):
            found, moved = results[number]
            assert found["losses"] == pytest.approx(losses, rel=within, abs=0), case
            assert [*found["state"]] == ([] if rank else [*state])
        found, moved = run.results[0][number]
        for name, value in state.items():
            gap = (found["state"][name] - value).norm() / value.norm().clamp_min(0.1)
            assert gap <= within, (case, name, "weights")
            gradient = start[name] - moved[name]
            gap = (gradient - gradients[name]).norm() / gradients[name].norm().clamp_min(0.1)
            assert gap <= within, (case, name, "gradient")


@pytest.mark.parametrize("ranks", [8, 6])
def test_meshes_of_each_two_axes_equal_one_process(ranks):
    compare(ranks, list(by_pairs(ranks)))


@pytest.mark.sweep
@pytest.mark.parametrize("ranks", [8, 6])
def test_every_mesh_equals_one_process(ranks):
    compare(ranks, list(thinned(ranks)))


@pytest.mark.sweep
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ranks", [8, 6])
def test_every_mesh_schedule_and_option_equals_one_process(ranks, schedule):
    compare(ranks, [case for case in grid(ranks) if case.schedule == schedule])


def test_the_cases_of_8_ranks_combine_each_schedule_and_option_with_each_axis():
    cases = list(by_pairs(8))
    for axis in range(3):
        several = {c[axis] for c in cases if sum(length > 1 for length in c[:3]) > 1}
        assert several == {1, 2, 4}, "beside another axis that is cut"
    cut = {tuple(length > 1 for length in c[:3]) for c in cases}
    assert {*itertools.product((False, True), repeat=3)} - cut == {
        (False, False, False), (True, False, False), (False, True, False), (False, False, True)
    }  # fmt: skip
    several = [c for c in cases if c.pp > 1]
    assert {c.schedule for c in several if c.tp > 1} == set(SCHEDULES)
    assert {c.schedule for c in several if c.dp > 1} == set(SCHEDULES)
    assert {c.dtype for c in several} == {c.dtype for c in cases if c.dp > 1} == set(TOLERANCE)
    assert any(c.sequence_parallel and c.schedule == "zb_h1" for c in several)
    assert any(c.sequence_parallel and c.overlap for c in cases)
    assert {c.schedule for c in several if c.overlap} >= {"1f1b", "interleaved"}
    assert any(c.kv_heads < c.tp and c.schedule == "zb_h1" for c in several)
    assert {c[:3] for c in cases if c.steps == SEVERAL} == {(2, 2, 2)}
    assert any(3 in c[:3] for c in by_pairs(6))


def test_the_grid_has_every_mesh_with_every_schedule_and_every_two_options():
    for ranks, many in ((8, 40), (6, 36)):
        assert {c[:3] for c in thinned(ranks)} == {*meshes(ranks)}
        cases = list(grid(ranks))
        pairs = {(c[:3], c.schedule) for c in cases}
        assert pairs == {*itertools.product(meshes(ranks), SCHEDULES)} and len(cases) == many
        for one, two in itertools.combinations(OPTIONS, 2):
            together = {(getattr(c, one), getattr(c, two)) for c in cases}
            assert len(together) == (8 if one == "schedule" else 4), (one, two)
        assert all(c.steps == STEPS for c in [*cases, *thinned(ranks)])


# -- a list of stages ----------------------------------------------------------------------------
class Scaled(nn.Module):
    """A layer in which a parameter and a buffer stand beside another layer; `frozen` is not
    trained."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.scale = nn.Parameter(torch.ones(outputs))
        self.frozen = nn.Parameter(torch.ones(outputs), requires_grad=False)
        self.register_buffer("shift", torch.full((outputs,), 0.1))

    def forward(self, x):
        return torch.tanh(self.linear(x) * self.scale * self.frozen + self.shift)


def own_stages(count):
    """Stages, of which the first and the last share a weight."""
    stages = [Scaled(12, 12) for _ in range(count)]
    stages[-1].linear.weight = stages[0].linear.weight
    for number, stage in enumerate(stages):
        seed_layers(stage, 7, 10 * number)
    seed_layers(stages[0].linear, 3)
    return [stage.double() for stage in stages]


def squares(rows):
    generator, found = torch.Generator().manual_seed(2), []
    for count in rows:
        x = torch.randn(count, 12, generator=generator).double()
        found.append((x, x.flip(1).sin()))
    return found


ROWS = (12, 7, 1)
OWN = [  # dp, schedule, clip, overlap
    (1, "zb_h1", None, False), (2, "1f1b", None, False), (1, "interleaved", None, False),
    (2, "gpipe", 0.002, False), (2, "interleaved", None, True), (2, "zb_h1", 0.002, True),
    (2, "dualpipev", None, True),
]  # fmt: skip


def stages_of(dp, schedule):
    return 4 // dp * (2 if schedule in ("interleaved", "dualpipev") else 1)


def own_worker(comm):
    found = []
    for dp, schedule, clip, overlap in OWN:
        stages = own_stages(stages_of(dp, schedule))
        found.append(
            hybrid.train(
                comm, stages, squares(ROWS), "momentum", lr=0.1, dp=dp, pp=comm.size // dp, tp=1,
                schedule=schedule, loss=functional.mse_loss, clip=clip, overlap=overlap,
                bucket_bytes=1000, microbatches=4,
            )
        )  # fmt: skip
    return found


def in_one_process(stages, clip):
    model = nn.Sequential(*stages)
    parameters = [p for p in model.parameters() if p.requires_grad]
    rule, losses = update_rules.make("momentum", 0.1), []
    for x, y in squares(ROWS):
        model.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        if clip:
            assert nn.utils.clip_grad_norm_(parameters, clip) > clip
        losses.append(loss.item())
        rule.step(parameters, [p.grad for p in parameters])
    return losses, model.state_dict()


def test_a_list_of_stages_of_ones_own_equals_one_process():
    run = dlviz.launch(own_worker, 4)
    for number, (dp, schedule, clip, _) in enumerate(OWN):
        losses, state = in_one_process(own_stages(stages_of(dp, schedule)), clip)
        assert run.results[0][number]["losses"] == pytest.approx(losses, abs=1e-10), schedule
        found = run.results[0][number]["state"]
        assert sorted(found) == sorted(state)
        for name, value in state.items():
            assert torch.allclose(found[name], value, rtol=0, atol=1e-10), (schedule, name)


class CutStage(nn.Module):
    def __init__(self, axis):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.mlp = ParallelMLP(axis, 16, 32)

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class WholeStage(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.mlp = nn.ModuleDict({"up": nn.Linear(16, 32), "down": nn.Linear(32, 16)})

    def forward(self, x):
        return x + self.mlp["down"](functional.gelu(self.mlp["up"](self.norm(x))))


def pairs():
    x = torch.randn(6, 16, generator=torch.Generator().manual_seed(2)).double()
    return [(x, x.cos()), (x + 1, x.sin())]


def cut_worker(comm):
    """The stages of other ranks are missing."""
    axis = comm.mesh(dp=1, pp=2, tp=2)
    stages = [
        seed_layers(CutStage(axis.tp), 9, 10 * number).double() if number == axis.pp.rank else None
        for number in range(2)
    ]
    options: Any = {"dp": 1, "pp": 2, "tp": 2, "microbatches": 3, "clip": 0.1}
    return hybrid.train(comm, stages, pairs(), lr=0.1, loss=functional.mse_loss, **options)


def test_stages_that_cut_themselves_over_tp_equal_one_process():
    run = dlviz.launch(cut_worker, 4)
    model = nn.Sequential(*(seed_layers(WholeStage(), 9, 10 * number) for number in range(2)))
    model.double()
    for place, (x, y) in enumerate(pairs()):
        model.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        assert run.results[0]["losses"][place] == pytest.approx(loss.item(), abs=1e-10)
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
    state = run.results[0]["state"]
    assert sorted(state) == sorted(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.allclose(state[name], value, rtol=0, atol=1e-10), name

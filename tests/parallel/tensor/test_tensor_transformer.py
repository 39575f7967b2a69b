"""The Transformer cut over ranks against one process of the plain one; what it sends and holds."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import NamedTuple

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import dlviz
from dlviz import metrics
from dlviz.analysis.messages import collective_bytes
from dlviz.models import Transformer
from dlviz.parallel import update_rules
from dlviz.parallel.tensor import (
    ParallelTransformer,
    add_partial_gradients,
    clip_gradients,
    parallel_cross_entropy,
    whole_state,
)
from dlviz.parallel.tensor.parameters import axis_parameters

RANKS = 8
AXES = [1, 2, 3, 4, 6, 8]
B, S, H, HEADS, V = 2, 24, 48, 24, 48
STEPS = 20
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


class Case(NamedTuple):
    """The Transformer `layers` deep on so many `ranks`, trained for so many `steps`."""

    ranks: int
    kv_heads: int
    sequence_parallel: bool
    dtype: torch.dtype
    clip: float | None = None
    dropout: float = 0.1
    layers: int = 1
    steps: int = STEPS


def thinned():
    """Of each axis float64 with all hard options together, of 3 ranks for more steps, and some
    float32 and two layers."""
    for ranks in AXES:
        steps = 6 if ranks == 3 else 2
        yield Case(ranks, 1 if ranks == 3 else 2, True, torch.float64, 0.3, steps=steps)
    for ranks in (3, 4):
        yield Case(ranks, 12, False, torch.float32, steps=2)
    yield Case(4, 2, False, torch.float64, 0.3, layers=2, steps=2)


def grid():
    for ranks, kv_heads, cut, dtype, clip in itertools.product(
        AXES, (1, 2, 12, 24), (False, True), TOLERANCE, (None, 0.3)
    ):
        if not (kv_heads % ranks and ranks % kv_heads):
            yield Case(ranks, kv_heads, cut, dtype, clip)


def sizes(case):
    return case.layers, H, HEADS, V, S + 3, case.kv_heads, case.dropout, 5


def batches():
    """Rows that end in padding, with as many tokens on no two."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for step in range(STEPS):
        tokens = torch.randint(0, V, (B, S + 1), generator=generator)  # 0 is a word
        targets = tokens[:, 1:].clone()
        targets[0, S - 1 - step // 2 :] = -100
        targets[1, 0] = 0
        found.append((tokens[:, :-1], targets))
    return found


def shaken(model):
    """Norms and biases too are no ones and zeros."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn(p.shape, generator=generator)
    return model


def one_process(case):
    """Logits, losses, the first step's gradients (clipped), and the weights after the last."""
    model = shaken(Transformer(*sizes(case))).to(case.dtype)
    rule, parameters = update_rules.make("momentum", 0.05), list(model.parameters())
    losses = []
    for step, (tokens, targets) in enumerate(batches()[: case.steps]):
        model.zero_grad()
        logits = model(tokens)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        if case.clip is not None:
            norm = torch.nn.utils.clip_grad_norm_(parameters, case.clip).item()
            assert step or norm > case.clip, "a gradient that nothing clips"
        losses.append(loss.item())
        if not step:
            first = {name: p.grad.clone() for name, p in model.named_parameters()}
            start = logits.detach()
        rule.step(parameters, [p.grad for p in parameters])
    return start, losses, first, model.state_dict()


class Part(NamedTuple):
    """What a rank holds of a tensor: along `cut` part `index` of `parts`, all of it without."""

    value: torch.Tensor
    cut: int | None
    parts: int = 1
    index: int = 0

    def gap(self, whole):
        expected = whole if self.cut is None else whole.chunk(self.parts, self.cut)[self.index]
        assert self.value.shape == expected.shape
        # k's bias has no effect on a softmax: its gradient is noise around 0
        return ((self.value - expected).norm() / whole.norm().clamp_min(0.05)).item()


def on_ranks(comm, case):
    """This rank's part of the results of `one_process`."""
    model = ParallelTransformer(
        comm,
        *sizes(case),
        sequence_parallel=case.sequence_parallel,
        all_reduce="ring" if case.dtype == torch.float64 else "backend",
    )
    model.load(shaken(Transformer(*sizes(case))).state_dict())
    model.to(case.dtype)
    rule, parameters = update_rules.make("momentum", 0.05), list(model.parameters())
    losses = []

    def parts(gradients):
        found = {}
        for layer, module, name, p, cut, _ in axis_parameters(comm, model):
            where = () if cut is None else (module.comm.size, module.comm.rank)
            value = p.grad.clone() if gradients else p.detach()
            found[f"{layer}.{name}"] = Part(value, cut, *where)
        return found

    for step, (tokens, targets) in enumerate(batches()[: case.steps]):
        model.zero_grad()
        logits = model(tokens)
        loss = parallel_cross_entropy(comm, logits, targets)
        loss.backward()
        if case.sequence_parallel:
            add_partial_gradients(comm, model)
        if case.clip is not None:
            clip_gradients(comm, model, case.clip)
        losses.append(loss.item())
        if not step:
            first, start = parts(gradients=True), Part(logits.detach(), -1, comm.size, comm.rank)
        rule.step(parameters, [p.grad for p in parameters])
    return start, losses, first, parts(gradients=False)


def each_case(comm, cases):
    found = {}
    for case in cases:
        axis = comm.split(0 if comm.rank < case.ranks else None)
        if axis is not None:
            found[case] = on_ranks(axis, case)
    return found


def check(cases):
    results = dlviz.launch(each_case, RANKS, args=(cases,), timeout=600).results
    oracle = {case._replace(ranks=1, sequence_parallel=False): None for case in cases}
    oracle = {case: one_process(case) for case in oracle}
    for rank, found in enumerate(results):
        assert [*found] == [case for case in cases if rank < case.ranks]
        for case, (logits, losses, *mine) in found.items():
            start, losses_of_one, *whole = oracle[case._replace(ranks=1, sequence_parallel=False)]
            assert losses == pytest.approx(losses_of_one, abs=TOLERANCE[case.dtype]), case
            gaps = {"logits": logits.gap(start)}
            for what, parts, values in zip(["gradient of", "after"], mine, whole, strict=True):
                assert [*parts] == [*values]
                gaps |= {f"{what} {name}": parts[name].gap(values[name]) for name in parts}
            off = {name: gap for name, gap in gaps.items() if not gap <= TOLERANCE[case.dtype]}
            assert not off, (rank, case, off)


def test_a_transformer_on_any_ranks_equals_one_process():
    check([*thinned()])


@pytest.mark.sweep
def test_a_transformer_equals_one_process_in_every_form():
    check([*grid()])


# -- what it sends -------------------------------------------------------------------------------
COUNTED = [*itertools.product((1, 2, 3), (False, True))]  # layers, sequence parallelism


def one_step_each(comm):
    tokens, targets = batches()[0]
    for step, (layers, cut) in enumerate(COUNTED):
        model = ParallelTransformer(comm, layers, H, HEADS, V, S, sequence_parallel=cut).double()
        with comm.span("phase", step=step):
            parallel_cross_entropy(comm, model(tokens), targets).backward()
            if cut:
                add_partial_gradients(comm, model)


@pytest.fixture(scope="module")
def counted():
    run = dlviz.launch(one_step_each, 4)
    run.trace.validate()
    return run.trace


@pytest.mark.parametrize("step", range(len(COUNTED)))
def test_the_collectives_of_a_step_are_those_of_the_formula(counted, step):
    layers, cut = COUNTED[step]
    trace = counted.only(step=step)
    activation, small = B * S * H * 8, B * S * 8
    whole = (layers * 6 + 2 + S) * H * 8  # two norms and two row biases a block; positions
    for rank in range(4):
        spans = trace.only(rank=rank, kind="collective").spans
        found = Counter(
            (fields["collective"], fields["direction"], nbytes)
            for fields, nbytes in zip(spans.fields, spans.nbytes.tolist(), strict=True)
            if fields  # not the backend's own, by which ranks compare what they hold
        )
        exchanges = 2 * layers + 1
        assert found == Counter(
            {
                ("all_gather", "forward", activation): exchanges,
                ("reduce_scatter", "forward", activation): exchanges,
                ("reduce_scatter", "backward", activation): exchanges,
                ("all_gather", "backward", activation): 2 * exchanges,  # half of them a second time
                ("all_reduce", "backward", whole): 1,
                ("all_reduce", "forward", small): 3,
            }
            if cut
            else {
                ("all_reduce", "forward", activation): exchanges,
                ("all_reduce", "backward", activation): exchanges,
                ("all_reduce", "forward", small): 3,
            }
        )
        passes = 5 * exchanges if cut else 4 * exchanges  # an all-reduce goes round the ring twice
        sent = 3 * (passes * activation + 2 * (3 * small + cut * whole)) // 4
        assert metrics.bytes_sent(trace)[rank] - collective_bytes(trace)[rank] == sent


# -- what it holds -------------------------------------------------------------------------------
class Live(TorchDispatchMode):
    """The most bytes alive at the same time, of tensors made inside."""

    def __init__(self):
        super().__init__()
        self.peak, self.storages = 0, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self.storages[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        alive = {key: (ref, n) for key, (ref, n) in self.storages.items() if not ref.expired()}
        self.storages = alive
        self.peak = max(self.peak, sum(nbytes for _, nbytes in alive.values()))
        return out


def drawn_alone(comm):
    with Live() as live:
        model = ParallelTransformer(comm, 3, H, HEADS, V, S, kv_heads=12, seed=7)
    state = whole_state(comm, model)
    return sum(p.nbytes for p in model.parameters()), live.peak, state


def test_a_rank_draws_its_shards_and_never_holds_the_whole_model():
    results = dlviz.launch(drawn_alone, 4).results
    plain = Transformer(3, H, HEADS, V, S, kv_heads=12, seed=7)
    state = results[0][2]
    assert [*state] == [*plain.state_dict()]
    assert all(torch.equal(state[name], value) for name, value in plain.state_dict().items())
    # a quarter of q, k, v, output, up, down and their biases; output's and down's whole, and norms
    block = (11 * H * H + 6 * H) // 4 + 6 * H
    held = 4 * (3 * block + V * H // 4 + S * H + 2 * H)
    largest = max(p.nbytes for p in plain.parameters())
    whole = sum(p.nbytes for p in plain.parameters())
    for own, peak, _ in results:
        assert own == held < whole / 3
        assert held < peak <= held + largest, "one whole layer at a time is drawn at the most"


# -- what is refused -----------------------------------------------------------------------------
def refused(comm):
    sizes = {"layers": 1, "hidden": 16, "heads": 4, "vocabulary": 16, "sequence": 8}
    text = torch.zeros(2, 7, dtype=torch.int64)
    said = []
    for options in ({"heads": 2}, {"vocabulary": 18}):
        with pytest.raises(ValueError) as error:
            ParallelTransformer(comm, **sizes | options)
        said.append(str(error.value))
    cut = ParallelTransformer(comm, **sizes, sequence_parallel=True)
    plain = Transformer(**sizes).state_dict()
    other = Transformer(**sizes, seed=1 + (comm.rank == 2)).state_dict()
    longer = Transformer(**sizes | {"sequence": 9}).state_dict()
    for act in (
        lambda: cut(text),
        lambda: cut(torch.zeros(2, 9, dtype=torch.int64)),
        lambda: cut(text[:, :4] + 16),
        lambda: cut.load({name: p for name, p in plain.items() if name != "norm.bias"}),
        lambda: cut.load(plain | {"blocks.1.norm1.bias": plain["norm.bias"]}),
        lambda: cut.load(longer),
        lambda: cut.load(other),
        lambda: clip_gradients(comm, cut, 0.0),
    ):
        with pytest.raises(ValueError) as error:
            act()
        said.append(str(error.value))
    return said


def test_sizes_texts_and_states_that_do_not_fit_are_refused_on_every_rank():
    expected = [
        "heads=2 cannot be split over 4 ranks: each rank needs a whole number of heads.",
        "vocabulary=18 cannot be split over 4 ranks: each rank needs a whole number of tokens.",
        "sequence=7 cannot be split over 4 ranks: each rank needs a whole number of tokens.",
        "the text is 9 tokens long and the model's sequence=8",
        "token 16 at place 0 of row 0 is not in the model's vocabulary=16",
        "the state does not fit ParallelTransformer: the state lacks norm.bias.",
        "the state does not fit ParallelTransformer: the model has no place for blocks.1",
        "positions.weight is (9, 16): give the whole one, (8, 16).",
        "rank 0 and rank 2 hold different weights for tokens: rank 0 has weight = float32(16, 16)",
        "clip=0.0 leaves no gradient: use a norm above 0",
    ]
    for said in dlviz.launch(refused, 4).results:
        for sentence, begin in zip(said, expected, strict=True):
            assert sentence.startswith(begin)

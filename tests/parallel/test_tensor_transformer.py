"""The Transformer cut over ranks against one process of the plain one; what it sends and holds."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import NamedTuple

import pytest
import torch

import dlviz
from dlviz.models import Transformer, token_loss
from dlviz.parallel import update_rules
from dlviz.parallel.tensor import (
    ParallelTransformer,
    add_partial_gradients,
    clip_gradients,
    parallel_cross_entropy,
)
from dlviz.parallel.tensor.parameters import placed

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
    """Of each axis float64 with all that is hard at once, and some float32 and two layers."""
    for ranks in AXES:
        steps = STEPS if ranks < 5 else 5
        yield Case(ranks, 1 if ranks == 3 else 2, True, torch.float64, 0.3, steps=steps)
    for ranks in (3, 4):
        yield Case(ranks, 12, False, torch.float32)
    yield Case(4, 2, False, torch.float64, 0.3, layers=2, steps=5)


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
        tokens = torch.randint(1, V, (B, S + 1), generator=generator)
        tokens[0, S - step // 2 :] = 0
        found.append((tokens[:, :-1], tokens[:, 1:]))
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
        loss = token_loss(logits, targets)
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
    """What `one_process` has, as far as this rank holds it."""
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
        for layer, module, name, p, cut, _ in placed(comm, model):
            where = () if cut is None else (module.comm.size, module.comm.rank)
            value = p.grad.clone() if gradients else p.detach()
            found[f"{layer}.{name}"] = Part(value, cut, *where)
        return found

    for step, (tokens, targets) in enumerate(batches()[: case.steps]):
        model.zero_grad()
        logits = model(tokens)
        loss = parallel_cross_entropy(comm, logits, targets, ignore_index=0)
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


def test_a_transformer_on_any_ranks_takes_the_path_of_one_process():
    check([*thinned()])


@pytest.mark.sweep
def test_a_transformer_takes_the_path_of_one_process_in_every_form():
    check([*grid()])


# -- what it sends -------------------------------------------------------------------------------
COUNTED = [*itertools.product((1, 2, 3), (False, True))]  # layers, sequence parallelism


def one_step_each(comm):
    tokens, targets = batches()[0]
    for step, (layers, cut) in enumerate(COUNTED):
        model = ParallelTransformer(comm, layers, H, HEADS, V, S, sequence_parallel=cut).double()
        with comm.span("phase", step=step):
            parallel_cross_entropy(comm, model(tokens), targets, 0).backward()
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
        ways = 2 * layers + 1
        assert found == Counter(
            {
                ("all_gather", "forward", activation): ways,
                ("reduce_scatter", "forward", activation): ways,
                ("reduce_scatter", "backward", activation): ways,
                ("all_gather", "backward", activation): 2 * ways,  # half of them a second time
                ("all_reduce", "backward", whole): 1,
                ("all_reduce", "forward", small): 3,
            }
            if cut
            else {
                ("all_reduce", "forward", activation): ways,
                ("all_reduce", "backward", activation): ways,
                ("all_reduce", "forward", small): 3,
            }
        )
        passes = 5 * ways if cut else 4 * ways  # an all-reduce goes round the ring twice
        sent = 3 * (passes * activation + 2 * (3 * small + cut * whole)) // 4
        assert metrics.bytes_sent(trace)[rank] == sent

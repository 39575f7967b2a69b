"""The messages and saved bytes of layers cut over ranks, and their products, from the Trace."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch

import dlviz
from dlviz import Trace
from dlviz.analysis.products import Cells, layer_collectives, products
from dlviz.parallel.pipeline.saved_activations import SavedActivations
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.prices import Products
from dlviz.parallel.tensor import NaiveMLP, ParallelAttention, ParallelMLP

LAYOUTS = [[8], [6, 2], [4, 3, 1]]
B, S, HIDDEN, INNER, HEADS = 2, 24, 48, 96, 24
KV_HEADS = {1: 6, 2: 1, 3: 24, 4: 2, 6: 3, 8: 4}  # one for two ranks wherever these are even
KINDS = ["mlp", "naive", "attention", "shared", "mlp by tokens", "attention by tokens"]
X = 8 * B * S * HIDDEN  # bytes of x and of y, float64
MIDDLE = 8 * B * S * INNER


def build(kind, axis):
    how: dict[str, Any] = {"sequence_parallel": kind.endswith("tokens")}
    if kind == "naive":
        return NaiveMLP(axis, HIDDEN, INNER).double()
    if kind.startswith("mlp"):
        return ParallelMLP(axis, HIDDEN, INNER, **how).double()
    kv_heads = KV_HEADS[axis.size] if kind == "shared" else None
    return ParallelAttention(axis, HIDDEN, HEADS, kv_heads, **how).double()


def collectives_of(kind, ranks):
    """(layer, direction, collective) -> the bytes of the whole tensor, in the order of the run."""
    first, last = ("q", "output") if kind.startswith(("attention", "shared")) else ("up", "down")
    if kind == "naive":
        return {
            ("up", "forward", "all_gather"): MIDDLE,
            ("down", "forward", "all_gather"): X,
            ("down", "backward", "all_reduce"): MIDDLE,
            ("up", "backward", "all_reduce"): X,
        }
    if kind.endswith("tokens"):
        return {
            (first, "forward", "all_gather"): X,
            (last, "forward", "reduce_scatter"): X,
            (last, "backward", "all_gather"): X,
            (first, "backward", "all_gather"): X,
            (first, "backward", "reduce_scatter"): X,
        }
    found = {(last, "forward", "all_reduce"): X, (first, "backward", "all_reduce"): X}
    if kind == "shared" and KV_HEADS[ranks] < ranks:
        weights = 8 * HIDDEN // HEADS * (HIDDEN + 1)  # of one head, and its bias
        found |= {(layer, "backward", "all_reduce"): weights for layer in "kv"}
    return found


def axes(comm):
    for layout in LAYOUTS:
        ends = [sum(layout[: n + 1]) for n in range(len(layout))]
        yield comm.split(next(n for n, end in enumerate(ends) if comm.rank < end))


def one_step_each(comm):
    """A forward and a backward of each kind on each axis; step 10 i + k is kind k on axis i."""
    sizes = []
    for number, axis in enumerate(axes(comm)):
        sizes.append((axis.size, axis.rank))
        for kind, name in enumerate(KINDS):
            torch.manual_seed(0)  # on axes of unequal length other layers were drawn before
            model = build(name, axis)
            tokens = S // axis.size if name.endswith("tokens") else S
            with comm.span("step", step=10 * number + kind):
                x = torch.ones(B, tokens, HIDDEN, dtype=torch.float64, requires_grad=True)
                model(x).sum().backward()
    return sizes


@pytest.fixture(scope="module")
def run():
    return dlviz.launch(one_step_each, 8)


def steps_of(run):
    """(rank, axis's ranks, place on it, kind, step) of all that ran."""
    for rank, sizes in enumerate(run.results):
        for number, (ranks, place) in enumerate(sizes):
            for kind, name in enumerate(KINDS):
                yield rank, ranks, place, name, 10 * number + kind


def test_each_layer_makes_exactly_these_collectives_and_each_rank_sends_exactly_their_bytes(run):
    found, messages = defaultdict(list), run.trace.messages
    for each in layer_collectives(run.trace):
        found[each.rank, each.step].append(each)
    shares = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
    for rank, ranks, _, kind, step in steps_of(run):
        made = found[rank, step]
        expected = collectives_of(kind, ranks) if ranks > 1 else {}
        calls = [(each.layer, each.direction, each.collective) for each in made]
        assert sorted(calls) == sorted(expected), (kind, ranks)
        for each, call in zip(made, calls, strict=True):
            group = 2 if call[0] in "kv" else ranks
            sent = messages.nbytes[list(each.messages)].sum()
            assert sent * group == shares[call[2]] * (group - 1) * expected[call], (kind, ranks)
    counted = sum(len(each.messages) for made in found.values() for each in made)
    assert counted == len(messages)  # nothing else is sent


def part(shape, dim, place, ranks):
    """Cells of part `place` of `ranks` along `dim`."""
    start, stop = [0] * len(shape), list(shape)
    start[dim], stop[dim] = (shape[dim] * n // ranks for n in (place, place + 1))
    return Cells(tuple(shape), tuple(start), tuple(stop))


def columns(inputs, outputs, place, ranks):
    x, w, y = (B, S, inputs), (outputs, inputs), (B, S, outputs)
    return part(x, 0, 0, 1), part(w, 0, place, ranks), part(y, -1, place, ranks)


def rows(inputs, outputs, place, ranks):
    x, w, y = (B, S, inputs), (outputs, inputs), (B, S, outputs)
    partial = Cells(y, (0, 0, 0), y, place, ranks)
    return part(x, -1, place, ranks), part(w, 1, place, ranks), partial


def placed(kind, place, ranks):
    """layer -> the cells of x, w and y, in the order in which the products run."""
    if kind == "naive":
        return {
            "up": columns(HIDDEN, INNER, place, ranks),
            "down": columns(INNER, HIDDEN, place, ranks),
        }
    if kind.startswith("mlp"):
        return {
            "up": columns(HIDDEN, INNER, place, ranks),
            "down": rows(INNER, HIDDEN, place, ranks),
        }
    kv_heads = KV_HEADS[ranks] if kind == "shared" else HEADS
    several = max(ranks // kv_heads, 1)  # that have the same heads of keys and values
    shared = columns(HIDDEN, HIDDEN // HEADS * kv_heads, place // several, ranks // several)
    return {
        "q": columns(HIDDEN, HIDDEN, place, ranks),
        "k": shared,
        "v": shared,
        "output": rows(HIDDEN, HIDDEN, place, ranks),
    }


def test_each_product_states_which_cells_of_the_whole_matrices_its_rank_holds(run):
    found = defaultdict(dict)
    for each in products(run.trace):
        found[each.rank, each.step][each.layer] = (each.x, each.w, each.y)
    for rank, ranks, place, kind, step in steps_of(run):
        held, expected = found[rank, step], placed(kind, place, ranks)
        assert list(held) == list(expected) and held == expected, (kind, ranks)


def test_a_saved_trace_states_the_same_cells_and_messages(run, tmp_path):
    run.trace.save(tmp_path / "run.json.gz")
    loaded = Trace.load(tmp_path / "run.json.gz")

    def said(trace):
        held = [(p.rank, p.step, p.layer, p.x, p.w, p.y) for p in products(trace)]
        called = [(c.rank, c.step, c.layer, c.direction, c.messages)
                  for c in layer_collectives(trace)]  # fmt: skip
        return sorted(held, key=str), sorted(called)

    assert said(loaded) == said(run.trace)


def priced(comm):
    """The FLOPs of `up` and of q by tokens and of all tokens: forward, backward."""
    found = []
    for name in ("mlp", "mlp by tokens", "attention", "attention by tokens"):
        model, tokens = build(name, comm), S // comm.size if name.endswith("tokens") else S
        x = torch.ones(B, tokens, HIDDEN, dtype=torch.float64, requires_grad=True)
        first = next(model.children())
        with Products() as counted:
            first(x)
        found.append((counted.forward, counted.backward))
    return found


def test_a_product_costs_as_many_flops_by_tokens_as_of_all_tokens():
    for mlp, mlp_tokens, attention, attention_tokens in dlviz.launch(priced, 2).results:
        flops = 2 * B * S * HIDDEN * INNER // 2
        assert mlp == mlp_tokens == (flops, 2 * flops)
        assert attention == attention_tokens == (flops // 2, flops)


def recorded(comm):
    mlp = ParallelMLP(comm, HIDDEN, INNER)
    LayerSpans(comm, mlp)
    for _ in range(2):
        mlp(torch.ones(B, S, HIDDEN, requires_grad=True)).sum().backward()


def test_a_layer_s_forward_and_backward_spans_hold_its_products_and_no_communication():
    spans = dlviz.launch(recorded, 3).trace.spans
    for rank in range(3):
        mine = spans[spans.rank == rank]
        computed = mine[np.isin(mine.kind, ["forward", "backward"])]
        of = [("forward", "up"), ("forward", "down"), ("backward", "down"), ("backward", "up")]
        assert list(zip(computed.kind, computed.name, strict=True)) == 2 * of
        sums = mine[(mine.kind == "collective") & (mine.group == "world")]
        sums = sums[[bool(fields) for fields in sums.fields]]
        assert len(sums) == 4
        for start, end in zip(computed.start, computed.end, strict=True):
            assert ((sums.end <= start) | (sums.start >= end)).all()
        inside = mine[(mine.kind == "phase") & (mine.name == "product up")]
        assert (inside.start >= computed.start[[0, 4]]).all()
        assert (inside.end <= computed.end[[0, 4]]).all()


def saved_bytes(comm):
    """Bytes that a forward of each kind saves for its backward, of all tokens and of own tokens."""
    found = []
    for name in ("mlp", "mlp by tokens", "attention", "attention by tokens"):
        model = build(name, comm)
        tokens = S // comm.size if name.endswith("tokens") else S
        x = torch.ones(B, tokens, HIDDEN, dtype=torch.float64, requires_grad=True)
        saved = SavedActivations(model)
        with saved:
            y = model(x)
        del y
        found.append(saved.nbytes)
    return found


def test_by_tokens_a_rank_saves_its_own_tokens_of_the_input_and_not_the_gathered_ones():
    for n in (2, 4):
        for mlp, mlp_tokens, attention, attention_tokens in dlviz.launch(saved_bytes, n).results:
            assert mlp == X + 2 * MIDDLE // n  # x, and what goes into GELU and comes out
            assert mlp_tokens == X // n + 2 * MIDDLE // n
            assert attention - attention_tokens == X - X // n

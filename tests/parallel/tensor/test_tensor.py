"""Layers cut over ranks against one process of plain torch, and what must be equal on all ranks."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import dlviz
from dlviz import collectives
from dlviz.models.transformer import Attention
from dlviz.parallel.tensor import (
    ColumnParallelLinear,
    NaiveMLP,
    ParallelAttention,
    ParallelMLP,
    RowParallelLinear,
)

# Of eight ranks, the axes that train side by side.
LAYOUTS = [[8], [6, 2], [4, 3, 1]]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
HEADS = 24
# Heads of keys and values by ranks: more than ranks, as many, and one for 2, 3 or 4 ranks.
KV_HEADS = {1: 6, 2: 4, 3: 1, 4: 2, 6: 2, 8: 2}


class MLP(nn.Module):
    """The whole one, in one process."""

    def __init__(self, hidden, inner, activation):
        super().__init__()
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.activation = activation

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


class Heads(nn.Module):
    """Attention of the test's own, by torch's function, a head of keys and values repeated."""

    def __init__(self, hidden, heads, kv_heads, causal):
        super().__init__()
        self.heads, self.kv_heads, self.causal = heads, kv_heads, causal
        self.q, self.output = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        width = hidden // heads * kv_heads
        self.k, self.v = nn.Linear(hidden, width), nn.Linear(hidden, width)

    def forward(self, x):
        many = self.heads, self.kv_heads, self.kv_heads
        q, k, v = (
            layer(x).unflatten(-1, (heads, -1)).transpose(-2, -3)
            for layer, heads in zip((self.q, self.k, self.v), many, strict=True)
        )
        k, v = (each.repeat_interleave(self.heads // self.kv_heads, -3) for each in (k, v))
        found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.output(found.transpose(-2, -3).flatten(-2))


class Case(NamedTuple):
    kind: type[nn.Module]
    dtype: torch.dtype = torch.float64
    shape: str = "3-D"  # or "2-D", "strided"
    sequence_parallel: bool = False
    shared: bool = False  # heads of keys and values as in KV_HEADS
    causal: bool = True
    activation: object = nn.functional.gelu
    all_reduce: str = "ring"


CASES = [
    Case(ParallelMLP, shape="strided"),
    Case(ParallelMLP, torch.float32, "2-D", activation=nn.Tanh()),
    Case(ParallelMLP, sequence_parallel=True),
    Case(ParallelMLP, shape="2-D", sequence_parallel=True, all_reduce="backend"),
    Case(NaiveMLP, shape="2-D"),
    Case(ParallelAttention, causal=False),
    Case(ParallelAttention, shape="2-D", shared=True),
    Case(ParallelAttention, torch.float32, "strided", True),
    Case(ParallelAttention, shape="strided", sequence_parallel=True, shared=True),
]


def drawn(*shape, seed=1, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def build(case, axis):
    """A rank's model, and the whole one, whose weights torch's initialisation does not give."""
    how = {"all_reduce": case.all_reduce, "sequence_parallel": case.sequence_parallel}
    if case.kind is ParallelAttention:
        kv_heads = KV_HEADS[axis.size] if case.shared else HEADS
        plain = Heads(48, HEADS, kv_heads, case.causal)
        model = ParallelAttention(axis, 48, HEADS, kv_heads, case.causal, **how)
    else:
        hidden = 24 if case.kind is NaiveMLP else 5
        plain = MLP(hidden, 48, case.activation)
        how = {} if case.kind is NaiveMLP else how
        model = case.kind(axis, hidden, 48, case.activation, **how)
    with torch.no_grad():
        for seed, p in enumerate(plain.parameters()):
            p.copy_(drawn(*p.shape, seed=seed) / p.shape[-1] ** 0.5)
    plain.to(case.dtype), model.to(case.dtype)
    model.load(plain.state_dict())
    return model, plain


def given(case, hidden):
    x = drawn(2, 24, hidden, dtype=case.dtype)
    if case.shape == "strided":
        return drawn(24, 2, 2 * hidden, dtype=case.dtype).transpose(0, 1)[..., ::2]
    return x if case.shape == "3-D" else x[0]


def learn(model, x, finish=lambda: None, *, steps):
    """Outputs and all gradients of the first step, outputs and parameters after the last."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)
    found = {}
    for step in range(steps):
        optimizer.zero_grad()
        entering = x.clone(memory_format=torch.preserve_format).requires_grad_()
        y = model(entering)
        (y.square().sum() / 100).backward()
        finish()
        if not step:
            found = {"y": y.detach(), "dx": entering.grad}
            found |= {f"d {n}": p.grad.clone() for n, p in model.named_parameters()}
        optimizer.step()
    with torch.no_grad():
        found["evaluated"] = model(x)
    return found | {n: p.detach() for n, p in model.named_parameters()}


def gaps(case, axis, steps=20):
    """How far each result of this rank is from its part of the plain one's, by their length."""
    model, plain = build(case, axis)
    x = given(case, next(plain.parameters()).shape[1])

    def tokens(whole):
        return whole.chunk(axis.size, -2)[axis.rank] if case.sequence_parallel else whole

    def finish():  # a bias that is added to this rank's tokens
        if case.sequence_parallel:
            axis.all_reduce((model.down if hasattr(model, "down") else model.output).bias.grad)

    found, expected = learn(model, tokens(x), finish, steps=steps), learn(plain, x, steps=steps)
    assert found.keys() == expected.keys()
    off = {}
    for name, whole in expected.items():
        layer, _, parameter = name.removeprefix("d ").rpartition(".")
        own = model.get_submodule(layer).local(parameter, whole) if layer else tokens(whole)
        # The gradient of k's bias is 0: softmax ignores what is added to all scores.
        off[name] = ((found[name] - own).norm() / max(whole.norm(), 0.01)).item()
    return off


def axes(comm):
    """This rank's axis of each layout."""
    for layout in LAYOUTS:
        ends = [sum(layout[: n + 1]) for n in range(len(layout))]
        yield comm.split(next(n for n, end in enumerate(ends) if comm.rank < end))


def train_cases(comm, everywhere):
    """20 steps of all cases on all layouts `everywhere`. Else two steps, of each case on two
    layouts and of those whose heads are shared on all; and six of the first MLP and of the last
    attention on the last layout."""
    found = []
    for number, axis in enumerate(axes(comm)):
        for place, case in enumerate(CASES):
            long = number == len(LAYOUTS) - 1 and place in (0, 8)
            if everywhere or long or case.shared or (number + place) % 3:
                steps = 20 if everywhere else 6 if long else 2
                found.append((axis.size, place, gaps(case, axis, steps)))
    return found


@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.sweep)])
def test_on_1_to_8_ranks_values_gradients_and_weights_after_steps_are_one_process_s(everywhere):
    results = dlviz.launch(train_cases, 8, timeout=300, args=(everywhere,)).results
    assert {size for found in results for size, *_ in found} == {1, 2, 3, 4, 6, 8}
    for rank, found in enumerate(results):
        tried = [case for _, case, _ in found]
        assert min(map(tried.count, range(len(CASES)))) >= (len(LAYOUTS) if everywhere else 2)
        for size, case, off in found:
            within = TOLERANCE[CASES[case].dtype]
            wrong = {name: gap for name, gap in off.items() if not gap <= within}  # NaN is none
            assert not wrong, (rank, size, CASES[case])


def train_all_reduces(comm):
    names = ["backend", *collectives.ALGORITHMS]
    return [max(gaps(Case(ParallelMLP, all_reduce=name), comm).values()) for name in names]


def test_every_all_reduce_gives_the_same_model():
    for found in dlviz.launch(train_all_reduces, 3).results:
        assert len(found) == 1 + len(collectives.ALGORITHMS) and max(found) <= 1e-10


class Largest(TorchDispatchMode):
    """The bytes of the largest tensor that is made inside."""

    nbytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.nbytes = max(self.nbytes, out.untyped_storage().nbytes())
        return out


SHAPES = [(12, 24, True), (24, 12, False), (16, 40, True)]


def draw(comm):
    """Of each layer: whether it is its part of torch's own, the largest tensor that was made, and
    the bytes that its weight holds on to, also once it was loaded."""
    found = []
    for kind in (ColumnParallelLinear, RowParallelLinear):
        for shape in SHAPES:
            torch.manual_seed(7)
            with Largest() as largest:
                layer = kind(comm, *shape)
            after = torch.rand(1)
            torch.manual_seed(7)
            plain = nn.Linear(*shape)
            state = plain.state_dict()
            same = [torch.equal(p, layer.local(n, state[n])) for n, p in layer.named_parameters()]
            same.append(torch.equal(after, torch.rand(1)))
            layer.load(state)
            held = layer.weight.untyped_storage().nbytes()
            found.append((all(same), len(same), largest.nbytes, held))
    return found


def test_a_rank_draws_and_holds_its_part_of_torch_s_layer_and_never_the_whole():
    for found in dlviz.launch(draw, 4).results:
        for (same, many, largest, held), (inputs, outputs, bias) in zip(
            found, 2 * SHAPES, strict=True
        ):
            assert same and many == 2 + bias
            assert held == largest == 4 * inputs * outputs // 4


def test_plain_attention_of_models_loads_into_the_parallel_one():
    plain = Attention(24, 4, 2, nn.Identity())
    assert {*plain.state_dict()} == {*Heads(24, 4, 2, True).state_dict()}


FOUR = SimpleNamespace(size=4, rank=0, mesh=None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ColumnParallelLinear(FOUR, 8, 10),
            r"outputs=10 cannot be split over 4 ranks: .* the weight's rows. Use 1, 2, 5 or 10 r",
        ),
        (
            lambda: RowParallelLinear(FOUR, 7, 8),
            r"inputs=7 cannot be split over 4 ranks: .* the weight's columns. Use 1 or 7 ranks.",
        ),
        (
            lambda: ParallelMLP(FOUR, 8, 6),
            r"inner=6 cannot be split over 4 ranks: each rank needs a whole number of inner",
        ),
        (
            lambda: NaiveMLP(FOUR, 6, 8),
            r"outputs=6 cannot be split over 4 ranks",
        ),
        (
            lambda: ParallelAttention(FOUR, 48, 6),
            r"heads=6 cannot be split over 4 ranks: each rank needs a whole number of heads. "
            r"Use 1, 2, 3 or 6 ranks.",
        ),
        (
            lambda: ParallelAttention(FOUR, 50, 8),
            r"heads=8 cannot share hidden=50",
        ),
        (
            lambda: ParallelAttention(FOUR, 48, 12, 5),
            r"kv_heads=5 cannot serve heads=12",
        ),
        (
            lambda: ParallelAttention(FOUR, 48, 12, 3),
            r"kv_heads=3 cannot be split over 4 ranks: each rank needs whole heads of keys and "
            r"values, or as many ranks share each one. Use kv_heads=1, 2, 4 or 12.",
        ),
        (
            lambda: ParallelMLP(FOUR, 8, 8, all_reduce="rings"),
            r"all_reduce='rings' is not known",
        ),
        (
            lambda: ParallelMLP(FOUR, 8, 8, nn.PReLU()),
            r"activation=PReLU\(num_parameters=1\) has parameters, of whose gradient each rank",
        ),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_what_does_not_divide_is_refused_with_what_to_use(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def disagree(comm):
    """The errors, in this order, of models, states, inputs and tokens that do not fit."""
    said = []

    def attempt(act):
        try:
            act()
            said.append("nothing")
        except ValueError as error:
            said.append(str(error))

    odd = comm.rank == 2
    x = drawn(4, 8, dtype=torch.float32)
    attempt(lambda: ParallelMLP(comm, 8, 8 + 4 * odd)(x))
    attempt(lambda: ParallelMLP(comm, 8, 8)(x + odd * torch.eye(4, 8)))
    attempt(lambda: ParallelMLP(comm, 8, 8)(x[: 4 - odd]))
    attempt(lambda: ParallelMLP(comm, 8, 8)(x.double() if odd else x))
    attempt(lambda: ParallelMLP(comm, 8, 8, all_reduce="tree" if odd else "ring")(x))
    torch.manual_seed(comm.rank)
    mlp = ParallelMLP(comm, 8, 8)
    attempt(lambda: mlp(x))
    attempt(lambda: mlp.load(MLP(8, 8, None).state_dict()))
    torch.manual_seed(0)
    mlp.load(MLP(8, 8, None).state_dict())
    attempt(lambda: mlp(x))
    state = MLP(8, 8, None).state_dict()
    plain = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
    attempt(lambda: mlp.load(plain.state_dict()))
    said.append(torch.allclose(mlp(x), plain(x), atol=1e-6))
    attempt(lambda: mlp.load(state | {"side.weight": x}))
    attempt(lambda: mlp.load({n: v for n, v in state.items() if n != "up.bias"}))
    attempt(lambda: mlp.load(state | {"down.weight": state["down.weight"][:2]}))
    attempt(lambda: mlp(x[:, :5]))
    attempt(lambda: RowParallelLinear(comm, 8, 8)(x))
    attempt(lambda: RowParallelLinear(comm, 8, 8, sequence_parallel=True)(x[:3, :2]))
    attempt(lambda: ParallelMLP(comm, 8, 8, sequence_parallel=True)(x[: 1 + odd]))
    return said


SAID = [
    r"rank 0 and rank 2 hold different models or inputs at up: rank 0 has up \(8, 8, .* where "
    r"rank 2 has up \(8, 12, .*; give every rank of the axis the same model, seeded alike, and",
    r"rank 0 and rank 2 hold different models or inputs at up: .* x = float32\(4, 8\).* and "
    r"the same input",
    r"rank 0 has x = float32\(4, 8\).*where rank 2 has x = float32\(3, 8\)",
    r"rank 0 has x = float32\(4, 8\).*where rank 2 has x = float64\(4, 8\)",
    r"rank 0 has up \(.*all_reduce=ring.* where rank 2 has up \(.*all_reduce=tree",
    r"rank 0 and rank 1 hold different models or inputs at down: rank 0 has bias = float32\(8,\)",
    r"rank 0 and rank 1 hold different weights for up: rank 0 has weight = float32\(8, 8\)",
    r"nothing",
    r"nothing",  # a Sequential's state
    r"True",
    r"the state holds side.weight, of no layer of ParallelMLP: its layers are up, down.",
    r"the state of up holds weight: give weight and bias.",
    r"weight of down is \(2, 8\): give the whole one, \(8, 8\).",
    r"rank {rank} gave up an input of 5 columns: it takes 8, all there are.",
    r"rank {rank} gave a layer an input of 8 columns: it takes 2, this rank's part of 8.",
    r"sequence=3 cannot be split over 4 ranks: each rank needs a whole number of tokens. Use 1 or ",
    r"rank 0 has up .* for \(1, 8\) where rank 2 has up .* for \(2, 8\)",
]


def test_ranks_that_disagree_are_named_before_anything_is_learnt():
    for rank, said in enumerate(dlviz.launch(disagree, 4).results):
        assert len(said) == len(SAID)
        for sentence, pattern in zip(said, SAID, strict=True):
            assert re.search(pattern.replace("{rank}", str(rank)), str(sentence)), sentence

"""Layers cut over ranks against one process of plain torch; what they send, from the Trace."""

import itertools

import torch
from torch import nn

import dlviz
from dlviz.parallel.tensor import ColumnParallelLinear, NaiveMLP, ParallelMLP, RowParallelLinear

RANKS = 8
AXES = [1, 2, 3, 4, 6, 8]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


class Plain(nn.Module):
    """The whole MLP in one process."""

    def __init__(self, hidden, inner, activation):
        super().__init__()
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.activation = activation

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


def drawn(*shape, seed=1, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def whole(hidden, inner, activation, dtype):
    """Plain layers with weights and biases that torch's initialisation does not give."""
    model = Plain(hidden, inner, activation).to(dtype)
    with torch.no_grad():
        for seed, p in enumerate(model.parameters()):
            p.copy_(drawn(*p.shape, seed=seed, dtype=dtype) / p.shape[-1] ** 0.5)
    return model


def learn(model, x, steps=20):
    """Outputs, the gradient of x and those of the parameters of the first step; parameters after
    the last, of which gradients reach each other through momentum."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    for step in range(steps):
        optimizer.zero_grad()
        given = x.clone(memory_format=torch.preserve_format).requires_grad_()
        y = model(given)
        (y.square().sum() / y.shape[-1] / len(x)).backward()
        if not step:
            first = {n: p.grad.clone() for n, p in model.named_parameters()}
            found = {"y": y.detach(), "dx": given.grad}
        optimizer.step()
    found |= {f"gradient of {n}": value for n, value in first.items()}
    return found | {n: p.detach() for n, p in model.named_parameters()}


def own(model, name, value):
    """What of a whole result a rank of `model` holds."""
    name = name.removeprefix("gradient of ")
    layer, _, parameter = name.rpartition(".")
    return model.get_submodule(layer).own(parameter, value) if layer else value


def gaps(model, plain, x):
    """How far each result of `model` is from the plain one's, by its length."""
    model.load(plain.state_dict())
    expected, found = learn(plain, x), learn(model, x)
    assert found.keys() == expected.keys()
    return {
        name: ((found[name] - own(model, name, value)).norm() / (1 + value.norm())).item()
        for name, value in expected.items()
    }


def inputs(shape, dtype):
    """x (4, s, h), (4, h), and one that is not contiguous."""
    x = drawn(*shape, dtype=dtype)
    return [x, x[:, 0], x.transpose(0, 1)]


MLPS = [
    (kind, hidden, inner, activation, dtype)
    for (kind, hidden, inner, activation), dtype in itertools.product(
        [
            (ParallelMLP, 5, 24, nn.functional.gelu),
            (ParallelMLP, 6, 48, nn.Tanh()),
            (NaiveMLP, 24, 24, nn.functional.gelu),
        ],
        TOLERANCE,
    )
]


def mlps(comm):
    found = {}
    for ranks in AXES:
        axis = comm.split(0 if comm.rank < ranks else None)
        if axis is None:
            continue
        for case, (kind, hidden, inner, activation, dtype) in enumerate(MLPS):
            x = inputs((4, 3, hidden), dtype)[case % 3]
            model = kind(axis, hidden, inner, activation).to(dtype)
            found[ranks, case] = gaps(model, whole(hidden, inner, activation, dtype), x)
    return found


def test_an_mlp_on_any_ranks_equals_one_process_in_values_gradients_and_weights_after_20_steps():
    for rank, found in enumerate(dlviz.launch(mlps, RANKS).results):
        assert len(found) == len(MLPS) * sum(rank < ranks for ranks in AXES)
        for (ranks, case), each in found.items():
            off = {name: gap for name, gap in each.items() if gap > TOLERANCE[MLPS[case][-1]]}
            assert not off, (rank, ranks, MLPS[case], off)


def drawn_alone(comm):
    """Layers as they are drawn from one seed, beside torch's own."""
    found = []
    for inputs_, outputs, bias in [(12, 24, True), (24, 12, False)]:
        for kind in (ColumnParallelLinear, RowParallelLinear):
            torch.manual_seed(7)
            layer = kind(comm, inputs_, outputs, bias)
            after = torch.rand(1)
            torch.manual_seed(7)
            plain = nn.Linear(inputs_, outputs, bias)
            found += [torch.equal(p, layer.own(n, dict(plain.named_parameters())[n]))
                      for n, p in layer.named_parameters()]  # fmt: skip
            found.append(torch.equal(after, torch.rand(1)))
    return found


def test_layers_of_one_seed_are_the_parts_of_what_torch_draws():
    for found in dlviz.launch(drawn_alone, 4).results:
        assert len(found) == 2 * (3 + 2) and all(found)

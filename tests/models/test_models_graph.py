"""The operator graph of a module: what its groups are, and that a step of them, one after the other
in any order that the graph allows, is the module's."""

import copy
import pickle
import time

import pytest
import torch
from torch import nn

from dlviz import models, sim
from dlviz.machine import Device
from dlviz.models import GraphNet, graph_of
from dlviz.models.operators import BATCH
from dlviz.sim.placement import BRANCHES, LAB, recurrent
from tests.timing import attempts


class Residual(nn.Module):
    """Convolutions with a residual path, statistics of the batch, and a buffer of its own."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.left, self.right = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.head = nn.Linear(36, 5)
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(4))
        self.register_buffer("scale", torch.tensor([2.0]))

    def forward(self, x):
        x = nn.functional.relu_(self.norm(self.stem(x)))
        self.seen += x.detach().sum((0, 2, 3))
        x = self.left(x) + self.right(x).tanh() * self.scale  # two branches
        first, second = nn.functional.max_pool2d(x, 2).chunk(2, 1)
        return self.head(torch.cat([second, first], 1).flatten(1).repeat(1, 1)[:, :36])


class Unexportable(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        if x.sum() > 0:
            x = x + 1
        return self.second(self.first(x))


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.Linear(8, 5))


def tied():
    return models.Transformer(layers=2, hidden=8, heads=2, vocabulary=12, sequence=6)


CASES = {
    "mlp": (mlp, (4, 6), "operators"),
    "cnn": (Residual, (3, 1, 6, 6), "operators"),
    "transformer": (tied, (2, 6), "operators"),
    "children": (mlp, (4, 6), "children"),
    "lab": (lambda: GraphNet(LAB.parents), (3, 8), "children"),
}


def built(name):
    torch.manual_seed(1)
    make, shape, by = CASES[name]
    batch = torch.randint(12, shape) if name == "transformer" else torch.randn(*shape).double()
    return make().double(), batch, by


def in_one_process(module, batch):
    module(batch).square().sum().backward()


def by_groups(module, batch, operators):
    """A step, group by group, in the opposite order wherever the graph leaves a choice."""
    order = operators.graph.in_order([-at for at in range(len(operators))])
    values, done = {BATCH: batch}, {}
    for at in order:
        done[at] = operators.compute(at, module, values)
        values |= done[at].outputs
    output = values[operators.output].detach().requires_grad_()
    output.square().sum().backward()
    gradients = {operators.output: output.grad}
    for at in reversed(order):
        for name, each in done[at].backward(gradients).items():
            gradients[name] = gradients[name] + each if name in gradients else each
    return gradients


@pytest.mark.parametrize("name", CASES)
def test_a_step_of_the_groups_is_one_of_the_module(name):
    module, batch, by = built(name)
    plain, before = copy.deepcopy(module), copy.deepcopy(module.state_dict())
    operators = graph_of(module, batch, by=by)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    operators = pickle.loads(pickle.dumps(operators))
    gradients = by_groups(module, batch, operators)
    assert {*gradients} - {operators.output} == operators.graded - {operators.output}
    in_one_process(plain, batch)
    for (key, mine), p in zip(module.named_parameters(), plain.parameters(), strict=True):
        assert (mine.grad is None) == (p.grad is None), key
        if p.grad is not None:
            assert (mine.grad - p.grad).norm() <= 1e-12 * p.grad.norm() + 1e-15, key
    for key, value in plain.state_dict().items():
        assert torch.allclose(module.state_dict()[key], value, rtol=1e-12, atol=0), key


def test_parameters_chains_and_buffers_stay_with_their_operators():
    module, batch, _ = built("cnn")
    operators = graph_of(module, batch)
    by_name = {group.name: group for group in operators.groups}
    assert {*by_name["norm"].writes.values()} == {
        "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"
    }  # fmt: skip
    stem, norm, seen, left, right, head = operators.groups
    assert [each.name for each in (stem, norm, left, right, head)] == [
        "stem", "norm", "left", "right", "head"
    ]  # fmt: skip
    assert [*seen.writes.values()] == ["seen"] and "scale" in right.buffers
    assert operators.parents == ((), (0,), (1,), (1,), (1,), (3, 4))
    state = {key: each.nbytes for key, each in module.state_dict().items() if key != "unused"}
    assert sum(operators.weights) == sum(state.values())
    value = 3 * 4 * 6 * 6 * 8
    assert operators.nbytes == (value, value, 0, value, value, 0)
    assert operators.gradient_nbytes == operators.nbytes


def test_a_parameter_that_two_operators_use_is_a_value():
    module, batch, _ = built("transformer")
    operators = graph_of(module, batch)
    shared, users = (
        operators.groups[0],
        [at for at, own in enumerate(operators.parents) if 0 in own],
    )
    assert shared.parameters == shared.outputs == ("tokens.weight",) and len(users) == 2
    assert operators.nbytes[0] == operators.weights[0] == 12 * 8 * 8
    assert sum(operators.weights) == sum(p.nbytes for p in module.parameters())


@pytest.mark.parametrize("graph", [LAB, BRANCHES, recurrent(3, 4)])
def test_a_net_of_a_graph_has_its_groups(graph):
    operators = graph_of(GraphNet(graph.parents), (2, 8), by="children")
    assert operators.parents == graph.parents
    assert [group.name for group in operators.groups] == [f"{at}" for at in range(len(graph))]


def test_a_devices_flops_price_a_group_and_bytes_where_it_has_no_product():
    device = Device("test", flops=1e6, memory=1e9, memory_bandwidth=1e3)
    operators = graph_of(
        nn.Sequential(nn.Linear(4, 8), nn.ReLU()), (2, 4), by="children", device=device
    )
    product, value = 2 * 2 * 4 * 8, 2 * 8 * 4
    assert operators.forward == pytest.approx((product / 1e6, 2 * value / 1e3))
    assert operators.backward == pytest.approx((product / 1e6, 2 * value / 1e3))


def test_the_training_step_of_a_placement_sends_each_value_once_and_its_gradients_back_once():
    graph = sim.placement.Graph([1] * 4, [(), (0,), (0,), (1, 2)], [8] * 4)
    operators = graph_of(GraphNet(graph.parents), (1, 8), by="children")
    value = 8 * 4
    for placement, forward, back in (
        ([0, 1, 1, 1], {(0, 1): 1}, {(1, 0): 1}),
        ([0, 1, 2, 0], {(0, 1): 1, (0, 2): 1, (1, 0): 1, (2, 0): 1}, None),
        ([0, 0, 0, 0], {}, {}),
    ):
        back = {(b, a): n for (a, b), n in forward.items()} if back is None else back
        step = operators.training(placement)
        trace = sim.play(step.graph, step.placement, sim.Devices(3))
        sent = [(row.src, row.dst) for row in trace.messages]
        expected = {key: forward.get(key, 0) + back.get(key, 0) for key in {*forward, *back}}
        assert {key: sent.count(key) for key in sent} == expected
        assert trace.messages.nbytes.tolist() == [value] * len(sent)


def test_what_cannot_be_exported_is_refused_with_its_line_and_children_are_offered():
    says = r"Unexportable has no .*operators: .* at .*graph.py:\d+: if x.sum\(\) > 0.*by='children'"
    with pytest.raises(ValueError, match=says):
        graph_of(Unexportable(), (2, 4))
    with pytest.raises(ValueError, match="no graph of its children: .*move this line into a child"):
        graph_of(Unexportable(), (2, 4), by="children")
    with pytest.raises(ValueError, match=r"does not run on a batch of shape \(2, 5\).*give one"):
        graph_of(nn.Linear(4, 4), (2, 5))
    inside = nn.Sequential(nn.Linear(4, 4), Unexportable(), nn.Linear(4, 4))
    assert len(graph_of(inside, (2, 4), by="children")) == 3


class Several(nn.Module):
    def forward(self, x):
        return x + 1, x + 2


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.relu, self.last = nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x)
        return self.last(self.relu(x)) + x


@pytest.mark.parametrize(
    ("module", "options", "says"),
    [
        (
            nn.Linear(4, 4),
            {"by": "layer"},
            "by='layer' is not known: use 'operators' or 'children'",
        ),
        (Several(), {}, "Several has 2 outputs"),
        (Several(), {"by": "children"}, "Several has the output"),
        (
            nn.Sequential(nn.LSTM(4, 4), nn.Identity()),
            {"by": "children"},
            "has a tuple as its value",
        ),
        (InPlace(), {"by": "children"}, "relu changes first in place, which other groups need"),
    ],
)
def test_what_no_rank_can_run_is_refused(module, options, says):
    with pytest.raises(ValueError, match=says):
        graph_of(module, (2, 4), **options)


def test_twelve_layers_take_less_than_ten_seconds():
    module = models.Transformer(layers=12, hidden=64, heads=4, vocabulary=48, sequence=16)
    for attempt in attempts():
        with attempt:
            start = time.process_time()
            graph_of(module, (2, 16))
            assert time.process_time() - start < 10

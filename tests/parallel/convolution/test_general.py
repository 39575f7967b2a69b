"""Networks in which every layer has a cut of its own: trained, beside one process of plain torch.
All cases run in one launch of eight ranks."""

from __future__ import annotations

import random
import warnings
from functools import cache, partial
from math import prod

import pytest
import torch
from torch import nn

import dlviz
from dlviz.models import Residual, SmallResNet
from dlviz.parallel.convolution import Distribution
from dlviz.parallel.convolution.general import DistributedConv2d, cut
from dlviz.parallel.convolution.train import channel_filter, spatial, train
from dlviz.parallel.update_rules import Momentum

RANKS, STEPS = 8, 20
MESHES = [
    {"a": 1}, {"a": 2}, {"a": 3}, {"a": 2, "b": 2}, {"a": 5}, {"a": 2, "b": 3}, {"a": 7},
    {"a": 2, "b": 2, "c": 2}, {"a": 4, "b": 2}, {"a": 8},
]  # fmt: skip
ROWS = (5, 2, 1)
close = partial(torch.allclose, rtol=1e-11, atol=1e-12)


def net(groups=2):
    torch.manual_seed(0)
    block = nn.Sequential(
        nn.Conv2d(6, 6, 3, padding=1, groups=groups), nn.BatchNorm2d(6), nn.ReLU(inplace=True),
        Residual(nn.Conv2d(6, 6, 5, padding=2, bias=False)),
    )  # fmt: skip
    smaller = nn.Sequential(nn.Conv2d(6, 8, 2, 2, dilation=(1, 2)), nn.AvgPool2d((2, 1), 1))
    shortcut = nn.Sequential(
        nn.Conv2d(6, 8, (3, 3), (2, 2), padding=(0, 0)), nn.MaxPool2d((2, 1), 1)
    )
    layers = (
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6, momentum=None), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1), Residual(block), nn.ReLU(inplace=True),
        Residual(smaller, shortcut), nn.BatchNorm2d(8, affine=False), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 4),
    )  # fmt: skip
    return nn.Sequential(*layers).to(torch.float64)


def batches(rows, steps):
    draw = torch.Generator().manual_seed(rows)
    return [
        (
            torch.randn(rows, 3, 13, 11, generator=draw, dtype=torch.float64),
            torch.randint(4, (rows,), generator=draw),
        )
        for _ in range(steps)
    ]


@cache
def alone(rows, steps):
    model, losses = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for x, y in batches(rows, steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict()


def drawn(mesh, number):
    """Distributions of some of the layers: one axis of a dim along which it communicates."""
    draw, found = random.Random(number), {}
    for name, layer in net().named_modules():
        pools = isinstance(layer, nn.MaxPool2d | nn.AvgPool2d | nn.AdaptiveAvgPool2d)
        if isinstance(layer, nn.Sequential | Residual) or (draw.random() < 0.2 and not pools):
            continue
        many, one = ("NC", "HW") if pools else ("NCHW", "")
        if isinstance(layer, nn.Conv2d):
            many, one = "N", "CFHW"
        elif isinstance(layer, nn.Linear):
            many, one = "N", "CF"
        elif isinstance(layer, nn.Flatten | nn.Tanh):
            many = "N"
        cuts = {}
        for axis in draw.sample([*mesh], len(mesh)):
            dim = draw.choice(["", *many, *(dim for dim in one if dim not in cuts)])
            if dim == "C" and getattr(layer, "groups", 1) > 1 and mesh[axis] > 2:
                dim = ""  # would split a group
            if dim:
                cuts[dim] = (*cuts.get(dim, ()), axis)
        found[name] = Distribution(**cuts)
    return found


CASES = [
    *((mesh, drawn(mesh, number), ROWS[number % 3]) for number, mesh in enumerate(MESHES)),
    ({"a": 8}, Distribution(H="a"), 2), ({"a": 8}, Distribution(N="a"), 2),
    ({"a": 2, "b": 4}, Distribution(N="a", H="b"), 2),
    ({"a": 2, "b": 4}, Distribution(F="a", C="b"), 2),
]  # fmt: skip


def worker(comm):
    warnings.simplefilter("ignore")  # of idle ranks
    found = []
    for axes, distributions, rows in CASES:
        steps = STEPS if len(found) % 4 == 3 else 3
        part = comm.split(0 if comm.rank < prod(axes.values()) else None)
        if part is None:
            found.append(None)
            continue
        how = {"mesh": part.mesh(**axes), "distributions": distributions}
        found.append(train(part, net(), batches(rows, steps), Momentum(0.05), **how))
    return found


def test_any_cut_of_each_layer_trains_as_one_process_does():
    results = dlviz.launch(worker, RANKS, timeout=300).results
    for number, (axes, _, rows) in enumerate(CASES):
        losses, state = alone(rows, results[0][number].steps)
        assert len(losses) == (STEPS if number % 4 == 3 else 3)
        for rank in range(prod(axes.values())):
            assert results[rank][number].losses == pytest.approx(losses, rel=1e-11), CASES[number]
        found = results[0][number].state
        assert found.keys() == state.keys()
        for name, value in found.items():
            assert close(value, state[name]), (name, CASES[number])
        assert not any(results[rank][number].state for rank in range(1, prod(axes.values())))


def outputs(model):
    return model(batches(2, 1)[0][0]).tolist()


def strategies(comm):
    warnings.simplefilter("ignore")
    found = []
    for strategy, how in (
        (spatial, {}), (spatial, {"height": 1, "width": 4}), (spatial, {"width": 2}),
        (channel_filter, {}), (channel_filter, {"filters": 1, "channels": 4}),
        (channel_filter, {"channels": 2}),
    ):  # fmt: skip
        more = {"clip": 0.1, "evaluate": outputs, "evaluate_every": 3}
        found.append(strategy(comm, net(groups=1), batches(3, 4), "sgd", lr=0.1, **how, **more))
    return found


def test_the_strategies_clip_by_the_norm_of_all_blocks_and_evaluate_the_plain_model():
    model = net(groups=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(batches(3, 4)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        if step == 2:
            expected = torch.tensor(outputs(model.eval()))
            model.train()
    for found in zip(*dlviz.launch(strategies, 4).results, strict=True):
        for result in found:
            assert torch.allclose(torch.tensor(result.evaluations[3]), expected, atol=1e-6)
        for name, value in found[0].state.items():
            assert close(value, model.state_dict()[name]), name


def masked(outputs, labels):
    """NaN, and so is its gradient, where no row counts."""
    counts = (labels >= 0).double()
    return (outputs.square().sum(1) * counts).sum() / counts.sum()


def counted(inputs, labels):
    return (labels >= 0).sum()


def without_a_row(comm):
    warnings.simplefilter("ignore")
    given = [(x, torch.tensor([-1, 2, -1])) for x, _ in batches(3, 2)]  # of four ranks one counts
    return spatial(comm, net(1), given, "sgd", lr=0.1, loss=masked, weight=counted)


def test_rows_that_weigh_nothing_move_nothing():
    model = net(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, _ in batches(3, 2):
        optimizer.zero_grad()
        masked(model(x), torch.tensor([-1, 2, -1])).backward()
        optimizer.step()
    for name, value in dlviz.launch(without_a_row, 4).results[0].state.items():
        assert close(value, model.state_dict()[name]), name


def switching(comm):
    mesh = comm.mesh(p=2, q=2)
    cuts = {"0": Distribution(N=("p", "q")), "3": Distribution(F="p", C="q")}
    model = nn.Sequential(
        nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1),
        nn.ReLU(), nn.AvgPool2d(1), nn.Conv2d(8, 4, 1), nn.Flatten(), nn.Linear(64, 4),
    )  # fmt: skip
    x, y = torch.randn(8, 4, 8, 8), torch.arange(8) % 4
    return train(comm, model, [(x, y)], lr=0.1, mesh=mesh, distributions=cuts).losses


def test_a_switch_is_a_span_with_its_bytes_and_only_where_the_cut_changes():
    trace = dlviz.launch(switching, 4).trace
    spans = [row for row in trace.spans.rows() if (row.name or "").startswith("redistribute")]
    fields = [(s.name, s.fields["direction"], s.nbytes) for s in spans if s.rank == 1]
    # To C and F after N; none to 6, where these two have changed places.
    at_3, at_7 = 4 * 8 * 4 * 4 * 4 // 4, 4 * 8 * 4 * 8 * 8 // 4 // 4
    assert fields == [
        ("redistribute 3", "forward", at_3), ("redistribute 7", "forward", at_7),
        ("redistribute 7", "backward", at_7), ("redistribute 3", "backward", at_3),
    ]  # fmt: skip
    for span in spans:
        inside = [m for m in trace.messages.rows() if m.src == span.rank]
        inside = [m for m in inside if span.start <= m.sent <= span.end]
        assert sum(m.nbytes for m in inside) == span.nbytes * 3 // 4  # of its block
    held = {m.what for m in trace.memory.rows()}
    assert {"weights", "activations", "gradients"} <= held


def refusals(comm):
    mesh, said = comm.mesh(p=2), []
    conv = nn.Conv2d(4, 4, 3, padding=1)

    def tried(*layers, distributions=None, shape=(2, 4, 6, 6), on=mesh):
        try:
            cut(comm, nn.Sequential(*layers), shape, on, distributions)
        except ValueError as error:
            said.append(str(error))
        else:
            said.append("")

    tried(conv, distributions=Distribution(H="q"))
    tried(nn.Conv2d(4, 4, 3, padding_mode="reflect", padding=1))
    tried(nn.Conv2d(4, 4, 3, padding="same"))
    tried(nn.Conv2d(4, 4, 9, padding=1), distributions=Distribution(H="p"))
    tried(nn.Conv2d(6, 6, 1, groups=3), shape=(2, 6, 4, 4), distributions=Distribution(C="p"))
    tried(nn.Conv2d(3, 4, 1))
    tried(nn.BatchNorm2d(3))
    tried(nn.MaxPool2d(2, ceil_mode=True))
    tried(nn.AdaptiveAvgPool2d(2))
    tried(nn.Dropout())
    tried(nn.Conv2d(4, 4, 1), distributions={"1": Distribution(H="p")})
    tried(nn.Conv2d(4, 4, 1), nn.Flatten(), distributions={"1": Distribution(C="p")})
    tried(Residual(nn.Conv2d(4, 4, 3)))
    tried(nn.Conv2d(4, 4, 1), nn.ReLU(), distributions={"1": Distribution(N="p", F="p2")})
    other = comm.mesh(a=2, b=1)
    tried(nn.Conv2d(4, 4, 1), on=other, distributions=Distribution(H=("a", "b")))
    tried(nn.Conv2d(4 + comm.rank, 4, 1))
    with pytest.raises(ValueError, match=r"height=3 times width=1 is 3, and there are 2 ranks"):
        spatial(comm, net(), [], height=3)
    with pytest.raises(ValueError, match=r"filters=0 has to be a whole number, 1 or more"):
        channel_filter(comm, net(), [], channels=3)
    return said


REFUSED = [
    "Distribution(H='q') cuts over the axis 'q', which the mesh lacks: it has p.",
    "layer 0 has padding_mode='reflect', which cannot be cut: pad with zeros",
    "layer 0 has padding='same', which cannot be cut: pad with zeros, by a number of rows.",
    "layer 0: kernel=9 with dilation=1 spans 9 rows and the padded image has 8",
    "layer 0: groups=3 of 2 channels each are split by the cut of 6 channels over 2 ranks",
    "layer 0 takes 4 dims with 3 channels, and x is (2, 4, 6, 6): give both the same.",
    "layer 0 is of 3 channels, and x has 4: give both the same.",
    "layer 0 has ceil_mode=True, which cannot be cut: leave it out.",
    "layer 0 pools to (2, 2): use AdaptiveAvgPool2d(1).",
    "layer 0, a Dropout, cannot be cut: use an nn.Sequential of Conv2d, BatchNorm2d",
    "distributions names the layer '1', which the model lacks: it has 0.",
    "layer 1 under Distribution(C='p') would flatten a part of an image: cut N alone.",
    "layer 0 adds a body of (2, 4, 4, 4) and a shortcut of (2, 4, 6, 6): give both the same",
    "layer 1, a ReLU, has no filters, which Distribution(N='p', F='p2') cuts: cut C.",
    "layer 0 under Distribution(H=('a', 'b')) has H cut over 2 axes: make one axis of them",
    "rank 0 and rank 1 hold different models",
]


def test_what_cannot_be_cut_is_refused_on_every_rank():
    for said in dlviz.launch(refusals, 2).results:
        for text, expected in zip(said, REFUSED, strict=True):
            assert text.startswith(expected), (text, expected)


def idle(comm):
    mesh, x = comm.mesh(p=4), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    said, values = [], []
    for distribution in (Distribution(N="p"), Distribution(C="p"), Distribution(F="p")):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            conv = nn.Conv2d(3, 2, 3, padding=1, dtype=torch.float64)
            nn.init.ones_(conv.weight)
            net = cut(comm, nn.Sequential(conv), None, mesh, distribution)
            y = net(x)
            y.sum().backward()
            values.append((y.isfinite().all(), net.whole_state()))
        said.append([str(each.message) for each in seen])
        assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    return said, all(finite for finite, _ in values)


def test_more_ranks_than_samples_channels_or_filters_work_and_warn():
    results = dlviz.launch(idle, 4).results
    assert results[0][0] == [
        ["ranks 2, 3 are idle in layer 0: there are 4 ranks for 2 samples. Cut another dim too."],
        ["ranks 3 are idle in layer 0: there are 4 ranks for 3 channels. Cut another dim too."],
        ["ranks 2, 3 are idle in layer 0: there are 4 ranks for 2 filters. Cut another dim too."],
    ]
    assert all(finite for _, finite in results)
    assert all(said == [[]] * 3 for said, _ in results[1:])


def small(comm):
    model = SmallResNet(dtype=torch.float64)
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(2, 1, 32, 32, generator=draw, dtype=torch.float64)
    net = cut(comm, model, tuple(x.shape), comm.mesh(n=2, h=4), Distribution(N="n", H="h"))
    y = net(x)
    return y, net.rows(2), [isinstance(layer, DistributedConv2d) for layer in net]


def test_the_small_residual_net_gives_the_rows_of_its_outputs():
    model = SmallResNet(dtype=torch.float64)
    x = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = model(x)
    for y, rows, kinds in dlviz.launch(small, 8).results:
        assert close(y, expected[rows])
        assert kinds[0] and len(kinds) == len(model)

"""Layers that run again in the backward: torch.utils.checkpoint's bits, and fewer activations."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import dlviz
from dlviz.analysis.memory import peak_by_use
from dlviz.cluster.memory import Storages
from dlviz.parallel import data
from dlviz.parallel.recomputed import Recomputed
from dlviz.parallel.step.layers import LayerSpans
from dlviz.sim import recompute_peak


class Scaled(nn.Module):
    """A layer that takes a keyword, and needs more than one saved tensor."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x, scale=1.0):
        return (x * self.weight).sin() * scale


def network():
    torch.manual_seed(0)
    blocks = [
        nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.4), nn.Tanh()),
        nn.Sequential(nn.Dropout(0.2), Scaled(6), nn.ReLU(inplace=True)),
        nn.Linear(6, 6),
        nn.BatchNorm1d(6),
        nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Dropout(0.5)),
    ]
    return nn.Sequential(*blocks, nn.Dropout(0.1), nn.Linear(6, 3))


class Checkpointed(nn.Module):
    """The same segments by torch."""

    def __init__(self, layers, segments):
        super().__init__()
        self.layers, self.segments = layers, segments

    def forward(self, x):
        for part in torch.arange(len(self.layers)).tensor_split(self.segments):
            x = checkpoint(self.layers[part[0] : part[-1] + 1], x, use_reentrant=False)
        return x


def trained(net, steps=2, wanted=True):
    """Outputs, gradients of two steps, and the state of the generator after each."""
    torch.manual_seed(7)
    found = []
    for _ in range(steps):
        x = torch.randn(9, 6, requires_grad=wanted)
        y = net(x)
        y.square().sum().backward()
        found += [y, *[p.grad.clone() for p in net.parameters()], torch.get_rng_state()]
        found += [x.grad] if wanted else []
    return found


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("segments", [1, 2, 3, 5, 7, None])
def test_values_gradients_and_dropout_are_torch_s_to_the_last_bit(segments, wanted):
    own, plain = Recomputed(network(), segments), network()
    torchs = Checkpointed(network(), own.segments)
    buffers = [*own.buffers()]
    found = trained(own, wanted=wanted)
    assert all(one is other for one, other in zip(buffers, own.buffers(), strict=True))
    assert all(map(torch.equal, found, trained(torchs, wanted=wanted)))
    assert all(map(torch.equal, found, trained(plain, wanted=wanted)))
    assert own.state_dict().keys() == plain.state_dict().keys()
    # batch norm has counted each batch once, as without recomputation (torch's counts twice)
    assert all(map(torch.equal, own.state_dict().values(), plain.state_dict().values()))


def test_grad_modes_retained_graphs_and_second_derivatives():
    own, plain = Recomputed(network().double().eval(), 3), network().double().eval()
    x = torch.randn(4, 6, dtype=torch.double, requires_grad=True)
    with torch.no_grad():
        assert not own(x).requires_grad
        with torch.enable_grad():
            assert torch.equal(own(x), plain(x)) and own(x).requires_grad
    with torch.inference_mode():
        assert torch.equal(own(x), plain(x))

    def derivatives(net):
        y = net(x).square().sum()
        first = torch.autograd.grad(y, x, create_graph=True)[0]
        again = torch.autograd.grad(y, [x, *net.parameters()], retain_graph=True)
        return first, *again, torch.autograd.grad(first.sin().sum(), x)[0]

    assert all(map(torch.equal, derivatives(own), derivatives(plain)))


def test_keywords_nests_and_autocast_come_to_every_layer_again():
    def derivatives(net):
        scale = torch.full((3,), 2.0, requires_grad=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = net(torch.ones(2, 3), scale=scale) if isinstance(net, Recomputed) else None
            if y is None:
                y = torch.ones(2, 3)
                for layer in net:
                    y = layer(y, scale=scale)
        return y, *torch.autograd.grad(y.float().sum(), [scale, *net.parameters()])

    class Pair(Scaled):
        def forward(self, x, scale=1.0):
            return super().forward(x @ torch.ones(3, 3), scale=scale)

    layers = nn.Sequential(Pair(3), Pair(3), Pair(3))
    found, plain = derivatives(Recomputed(copy.deepcopy(layers), 2)), derivatives(layers)
    assert found[0].dtype == plain[0].dtype and all(map(torch.equal, found, plain))

    class Swap(nn.Module):
        def forward(self, pair):
            return {"a": pair["b"].sin(), "b": pair["a"] * pair["b"]}

    given = {name: torch.randn(3, requires_grad=True) for name in "ab"}
    swaps = nn.Sequential(Swap(), Swap(), Swap())
    for net in (Recomputed(swaps, 2), swaps):
        y = net(given)["b"].sum()
        found = [*torch.autograd.grad(y, [*given.values()])] if net is not swaps else found
    assert all(map(torch.equal, found, torch.autograd.grad(y, [*given.values()])))


def test_segments_inside_of_a_segment_run_again_too():
    def nested():
        net = network()
        return nn.Sequential(net[:3], net[3:])

    own = nested()
    inner = nn.Sequential(Recomputed(own[0], 2), Recomputed(own[1], 2))
    assert all(map(torch.equal, trained(Recomputed(inner, 1)), trained(nested())))


WIDTH, BATCH = 64, 256


def tanh_layers(count=16):
    return nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count)])


def layers_held(net):
    """Layer outputs that a rank holds after the forward and at the peak; all else is small."""
    x = torch.randn(BATCH, WIDTH)
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    with Storages(None, net) as storages:
        loss = net(x).square().mean()
        after = storages.now
        loss.backward()
    kinds = "activations", "other"
    unit = BATCH * WIDTH * 4
    return [sum(each.by_kind[k] for k in kinds) / unit for each in (after, storages.peak)]


@pytest.mark.parametrize("segments", [1, 2, 3, 4, 5, 8, 16])
def test_a_rank_holds_the_inputs_of_all_segments_and_the_layers_of_one(segments):
    plain_after, plain_peak = layers_held(tanh_layers())
    after, peak = layers_held(Recomputed(tanh_layers(), segments))
    assert [after, peak] == layers_held(Checkpointed(tanh_layers(), segments))
    assert [plain_after, plain_peak] == pytest.approx([17, 21], abs=0.1)  # input, 16 outputs; loss
    assert after == pytest.approx(segments + 1, abs=0.1)  # the output too
    # two gradients pass through a segment; the loss needs 4 tensors before the first begins
    most = max(recompute_peak(16, segments) + 2, after + 4)
    last = 16 // segments  # the last segments have the fewest layers
    assert peak == pytest.approx(max(segments + last + 2, after + 4), abs=0.1) and peak < most + 0.1


def test_what_a_segment_computed_again_is_counted_as_activations():
    net = Recomputed(tanh_layers(8), 2)
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    with Storages(None, net) as storages:
        loss = net(torch.randn(BATCH, WIDTH)).sum()
        storages.begin_step()
        loss.backward()
    found = storages.peak.by_kind
    # two inputs and three layers: the fourth is being computed
    assert found["activations"] == (2 + 3) * BATCH * WIDTH * 4
    assert found["parameters"] == 8 * (WIDTH + 1) * WIDTH * 4
    assert storages.now.by_kind["activations"] == 0


def spans_of(comm, segments, count, layers=tanh_layers):
    net = Recomputed(layers(count), segments) if segments else layers(count)
    LayerSpans(comm, net)
    x = torch.randn(4, WIDTH)
    comm.begin()
    net(x).sum().backward()


def of_kind(trace, *kinds):
    spans = trace.spans
    return [
        (kind, name)
        for kind, name, start in sorted(
            zip(spans.kind, spans.name, spans.start, strict=True), key=lambda one: one[2]
        )
        if kind in kinds
    ]


def test_a_segment_s_layers_are_recorded_again_before_their_backward():
    trace = dlviz.launch(spans_of, 1, args=(2, 4)).trace
    assert of_kind(trace, "recompute", "backward") == [
        ("recompute", "2.0"), ("recompute", "3.0"), ("backward", "3.0"), ("backward", "2.0"),
        ("recompute", "0.0"), ("recompute", "1.0"), ("backward", "1.0"), ("backward", "0.0"),
    ]  # fmt: skip
    spans = trace.spans[[kind in ("forward", "recompute", "backward") for kind in trace.spans.kind]]
    order = spans.start.argsort()
    assert (spans.end[order][:-1] <= spans.start[order][1:]).all()  # one thing at a time


def test_one_forward_more_is_four_thirds_of_a_paced_step():
    machine = dlviz.machine.classroom(1)
    lasted = {}
    for segments in (0, 4):
        trace = dlviz.launch(spans_of, 1, args=(segments, 8), machine=machine).trace
        work = trace.only(kind=("forward", "recompute", "backward")).spans
        lasted[segments] = work.end.max() - work.start.min()
    assert lasted[4] / lasted[0] == pytest.approx(4 / 3)


def linear_layers(count):
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(count)])


def test_a_segment_whose_last_layer_needs_no_product_stops_before_it():
    """It ends inside of the layer, whose span ends too, also on a machine that counts products."""
    machine = replace(dlviz.machine.classroom(1), step=None)
    for given in (None, machine):
        trace = dlviz.launch(spans_of, 1, args=(2, 4, linear_layers), machine=given).trace
        again = trace.only(kind="recompute").spans
        assert (again.end >= again.start).all()
        assert of_kind(trace, "recompute", "backward") == [
            ("recompute", "2"), ("recompute", "3"), ("backward", "3"), ("backward", "2"),
            ("recompute", "0"), ("recompute", "1"), ("backward", "1"), ("backward", "0"),
        ]  # fmt: skip


def train(comm, segments):
    torch.manual_seed(0)
    net = tanh_layers(4)
    batches = [(torch.randn(6, WIDTH), torch.randn(6, WIDTH)) for _ in range(3)]
    net = Recomputed(net, segments) if segments else net
    return data.train(comm, net, batches, loss=nn.functional.mse_loss, lr=0.1)


def test_a_strategy_trains_recomputed_layers_as_any_model():
    own, plain = (dlviz.launch(train, 2, args=(segments,)) for segments in (2, 0))
    assert own.results[0].losses == plain.results[0].losses
    pairs = zip(own.results[0].state.items(), plain.results[0].state.items(), strict=True)
    assert all(a == b and torch.equal(one, other) for (a, one), (b, other) in pairs)
    assert sum(own.trace.spans.kind == "recompute") == 2 * 3 * 4


def test_bad_segments_and_layers_are_refused():
    with pytest.raises(ValueError, match="segments=3 is more than the 2 layers"):
        Recomputed(nn.Sequential(nn.ReLU(), nn.ReLU()), 3)
    for layers in (nn.Linear(2, 2), nn.Sequential()):
        with pytest.raises(ValueError, match=f"layers={type(layers).__name__} cannot be cut"):
            Recomputed(layers)


def test_an_input_changed_in_place_is_refused_in_the_forward():
    net = Recomputed(nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True), nn.Linear(2, 2)), 3)
    with pytest.raises(ValueError, match="layers 1 to 1: the first, ReLU, changes its input in"):
        net(torch.ones(1, 2))


def test_what_does_not_run_again_as_it_ran_is_refused_in_the_backward():
    net = Recomputed(nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)), 1)
    y = net(torch.ones(1, 2))
    with torch.no_grad():
        net.get_parameter("2.weight").add_(1)
    with pytest.raises(ValueError, match="layers 0 to 2 cannot run again: a parameter has changed"):
        y.sum().backward()

    class Once(nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return x.sin() if self.calls == 1 else x

    with pytest.raises(ValueError, match="layers 0 to 0 cannot run again"):
        Recomputed(nn.Sequential(Once()))(torch.ones(2, requires_grad=True)).sum().backward()
    x = torch.ones(1, 2)
    y = net(x)
    x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def segmented(comm, segments):
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(16)])
    model = Recomputed(layers, segments)
    with Storages(comm, model):
        model(torch.randn(4096, 8)).square().mean().backward()


def test_the_trace_has_the_most_that_was_held_of_activations_whatever_else_was_held():
    for segments in (2, 4, 8):
        run = dlviz.launch(segmented, 1, args=(segments,))
        outputs = peak_by_use(run.trace, 0).each["activations"] / (4096 * 8 * 4)
        assert outputs == recompute_peak(16, segments)

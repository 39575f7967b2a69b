"""The price of a layer on a machine without a step: its FLOPs on this rank's examples.

The device columns of a paced run equal the price to rounding, on any machine; the wall
columns are measured.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from timing import attempts
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import dlviz
from dlviz import metrics
from dlviz.machine import Chance, Device, Link, classroom
from dlviz.models import Transformer
from dlviz.models.transformer import Attend
from dlviz.parallel.data import DDP, average_gradients
from dlviz.parallel.step.layers import LayerSpans, layers_of
from dlviz.parallel.step.prices import (
    Products,
    price,
    recurrent_flops,
    update_seconds,
    weights_price,
)
from dlviz.sim import Costs, Layer, data_parallel, data_parallel_seconds, simulate

pytestmark = pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")

DEVICE = Device("test", flops=1e9, memory=1e9, memory_bandwidth=1e6)
LAB = Link(5e-3, 1e8)  # 5 ms, 100 MB/s
BATCH = 2730  # examples: 378.8 ms on one rank
SHAPES = ((64, 128), (128, 128), (128, 10))
WEIGHTS = sum(a * b for a, b in SHAPES)


class Attention(nn.Module):
    """Products of activations alone, a vector among them, around one parameter."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, q, *, k):
        return ((q * self.scale) @ k.mT) @ k @ self.scale


def seconds(layer, *inputs, **keywords):
    with Products() as products:
        output = layer(*inputs, **keywords)
    return price(DEVICE, layer, [*inputs, *keywords.values()], output, products), output


def counted(layer, *inputs):
    """FLOPs of forward and backward by torch's counter, on tensors without data, on which torch
    runs recurrent layers product by product."""
    layer = layer.to("meta")
    inputs = [x.detach().to("meta").requires_grad_(x.requires_grad) for x in inputs]
    with FlopCounterMode(display=False) as forward:
        output = layer(*inputs)
    output = output if isinstance(output, torch.Tensor) else output[0]
    graded = [t for t in (*inputs, *layer.parameters()) if t.requires_grad]
    with FlopCounterMode(display=False) as backward:
        torch.autograd.grad(output, graded, torch.ones_like(output), allow_unused=True)
    return forward.get_total_flops(), backward.get_total_flops()


def frozen(layer):
    return layer.requires_grad_(False)


LAYERS = {
    "linear": (nn.Linear(6, 10), (7, 6)),
    "linear over tokens": (nn.Linear(6, 10, bias=False), (7, 3, 6)),
    "convolution": (nn.Conv2d(2, 4, 3, stride=2), (7, 2, 9, 9)),
    "transposed": (nn.ConvTranspose1d(2, 4, 3), (7, 2, 9)),
    "frozen": (frozen(nn.Linear(6, 10)), (7, 6)),
}
RECURRENT = {
    "lstm": (nn.LSTM(3, 5, batch_first=True), (4, 6, 3)),
    "gru": (nn.GRU(3, 5, num_layers=2, bidirectional=True), (6, 4, 3)),
    "rnn of one sequence": (nn.RNN(3, 5), (6, 3)),
    "projected": (nn.LSTM(3, 5, proj_size=2), (6, 4, 3)),
}


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_takes_the_flops_of_its_products_and_of_theirs_in_backward(name, graded):
    layer, shape = LAYERS[name]
    x = torch.randn(shape, requires_grad=graded)
    if name == "frozen" and not graded:
        assert seconds(layer, x)[0][1] == 0
        return
    (forward, backward), _ = seconds(layer, x)
    assert (forward * 1e9, backward * 1e9) == pytest.approx(counted(layer.to("cpu"), x))
    LAYERS[name][0].to_empty(device="cpu")


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("name", RECURRENT)
def test_a_recurrent_layer_takes_a_product_a_token_and_matrix(name, graded):
    layer, shape = RECURRENT[name]
    x = torch.randn(shape, requires_grad=graded)
    found = recurrent_flops(layer, x)
    assert found == counted(layer, x)
    layer.to_empty(device="cpu")


def test_of_packed_text_each_token_counts_and_padding_does_not():
    layer, lengths = nn.LSTM(3, 5), torch.tensor([6, 2, 1])
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(6, 3, 3), lengths)
    each = [recurrent_flops(layer, torch.randn(n, 1, 3)) for n in lengths.tolist()]
    assert recurrent_flops(layer, packed) == tuple(map(sum, zip(*each, strict=True)))


def test_products_of_activations_and_vectors_count_by_the_factors_that_get_a_gradient():
    q, k = torch.randn(2, 4, 6), torch.randn(2, 4, 6)
    forward = [2 * 2 * 4 * 6 * 4, 2 * 2 * 4 * 4 * 6, 2 * 2 * 4 * 6]
    (first, back), _ = seconds(Attention(), q, k=k)
    assert first * 1e9 == pytest.approx(sum(forward))
    assert back * 1e9 == pytest.approx(forward[0] + forward[1] + 2 * forward[2])
    (_, back), _ = seconds(Attention(), q, k=k.requires_grad_())
    assert back * 1e9 == pytest.approx(2 * sum(forward))


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_attentions_own_products_take_the_flops_that_torch_counts(kv_heads):
    q, *kv = (torch.randn(3, heads, 5, 6, requires_grad=True) for heads in (4, kv_heads, kv_heads))
    (forward, backward), _ = seconds(Attend(), q, *kv)
    assert forward * 1e9 == pytest.approx(2 * 2 * 3 * 4 * 5 * 5 * 6)
    assert (forward * 1e9, backward * 1e9) == pytest.approx(counted(Attend(), q, *kv))


def test_of_a_layer_without_trained_weights_nothing_waits_for_w():
    x = torch.randn(7, 6, requires_grad=True)
    layer = frozen(nn.Linear(6, 10))
    with Products() as products:
        layer(x)
    assert weights_price(DEVICE, [], products, 1.0) == 0
    assert weights_price(DEVICE, [layer.weight], products, 1.0) == 2 * 7 * 6 * 10 / 1e9


def test_a_layer_without_products_takes_what_it_reads_and_writes():
    norm, x = nn.LayerNorm(8), torch.randn(5, 8, requires_grad=True)  # 160 bytes
    (forward, backward), _ = seconds(norm, x)
    assert forward == pytest.approx((160 + 160) / 1e6)
    assert backward == pytest.approx((160 + 160 + 160 + 2 * 32) / 1e6)
    table, words = nn.Embedding(50, 4), torch.zeros(3, 2).long()  # 800 bytes, 48 bytes
    (forward, backward), _ = seconds(table, words)
    assert forward == pytest.approx((48 + 96) / 1e6)
    assert backward == pytest.approx((48 + 96 + 800) / 1e6)


def test_no_examples_cost_nothing_where_there_is_a_product():
    assert seconds(nn.Linear(6, 10), torch.randn(0, 6))[0] == (0, 0)
    assert recurrent_flops(nn.LSTM(3, 5), torch.randn(0, 1, 3)) == (0, 0)
    empty = torch.randn(4, 0, 3)
    assert recurrent_flops(nn.LSTM(3, 5), empty) == (0, 0)


# ---------------------------------------------------------------- on ranks


def mlp(bias):
    torch.manual_seed(0)
    first, second, third = (nn.Linear(a, b, bias) for a, b in SHAPES)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)


def work(comm, batch, method="ddp", bucket_bytes=10**9, pause=0.0, bias=True, steps=2):
    """Steps of data parallelism; the math of each first forward takes `pause` s longer."""
    model, shard = mlp(bias), torch.ones(batch, 64).tensor_split(comm.size)[comm.rank]
    if method == "naive":
        LayerSpans(comm, model)
        net = model
    else:
        net = DDP(model, comm, bucket_bytes=bucket_bytes)
    model[0].register_forward_pre_hook(lambda layer, inputs: time.sleep(pause))
    for step in range(steps):
        with comm.span("phase", step=step):
            model.zero_grad()
            loss = net(shard).square().sum()
            loss.backward()
            if method == "naive":
                average_gradients(comm, model)
            with comm.compute("update", seconds=update_seconds(comm, model.parameters())):
                pass
    return sum(p.nbytes for p in model.parameters())


TOKENS = torch.zeros(3, 5, dtype=torch.int64)


def transformer(comm):
    """Names of the layers of a plain Transformer, which has gone forward and backward."""
    net = Transformer(1, 8, 4, 6, 5, kv_heads=2, dropout=0.1)
    LayerSpans(comm, net)
    net(TOKENS).sum().backward()
    return [*layers_of(net)]


def test_attention_is_computed_between_its_layers_and_is_no_layer_that_is_seeded():
    run = dlviz.launch(transformer, 1, machine=classroom(1, step=None))
    assert "blocks.0.attention.output" in run.results[0]
    assert "blocks.0.attention" not in run.results[0]
    spans = run.trace.spans
    spans = spans[np.char.startswith(spans.name.astype(str), "blocks.0.attention")]
    names = spans.name.astype(str)
    assert [name.removeprefix("blocks.0.attention") for name in names[spans.kind == "forward"]] == [
        ".q", ".k", ".v", "", ".output"
    ]  # fmt: skip
    back = names[spans.kind == "backward"].tolist()
    assert back[:2] == ["blocks.0.attention.output", "blocks.0.attention"] and len(back) == 5
    own = spans[names == "blocks.0.attention"]
    flops = 2 * 2 * 3 * 5 * 5 * 8  # of the scores and of the values
    assert own.kind.tolist() == ["forward", "backward"]
    assert (own.end - own.start).tolist() == pytest.approx([flops / 1e9, 2 * flops / 1e9])


def test_a_plain_transformer_is_charged_for_all_its_products_those_of_the_tied_output_too():
    machine = replace(classroom(1, step=None), device=replace(DEVICE, memory_bandwidth=1e15))
    spans = dlviz.launch(transformer, 1, machine=machine).trace.spans
    names = spans.name[np.isin(spans.kind, ["forward", "backward"])].tolist()
    assert names.count("output") == 2 and names.index("output") > names.index("norm")
    scores = 3 * 2 * 15 * 8 * 6  # FLOPs forward and backward, of 15 tokens
    blocks = 3 * 2 * 15 * (12 * 8 * 8 - 8 * 8) + 3 * 2 * 2 * 3 * 5 * 5 * 8  # keys of 2 of 4 heads
    assert (spans.end - spans.start)[np.isin(spans.kind, ["forward", "backward"])].sum() == (
        pytest.approx((scores + blocks) / 1e9, rel=1e-6)
    )


class Choosy(nn.Module):
    """Its work depends on the values."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(6))

    def forward(self, x):
        return x @ self.weight @ self.weight if x.sum() > 0 else x @ self.weight


def calls(comm):
    """How often the products are counted: in each of two forwards of a plain Transformer, and in
    four of a layer of the reader's own."""
    counted, enter = [0], Products.__enter__

    def counting(self):
        counted[-1] += 1
        return enter(self)

    Products.__enter__ = counting
    net, own = Transformer(3, 8, 4, 6, 5), Choosy()
    LayerSpans(comm, net)
    LayerSpans(comm, own)
    for inputs in (TOKENS, TOKENS, TOKENS[:2]):
        net(inputs)
        counted.append(0)
    for sign in (1, -1, 1, -1):
        own(torch.full((10, 6), float(sign)))
    return counted


def test_products_are_counted_once_for_each_form_but_in_a_layer_that_may_look_at_the_values():
    run = dlviz.launch(calls, 1, machine=classroom(1, step=None))
    embeddings, norm, square, attend, up, down, scores = 2, 1, 1, 1, 1, 1, 1
    once = embeddings + norm + square + attend + up + down + scores
    assert run.results[0] == [once, 0, once - 1, 4]  # the positions' input has the same form
    spans = run.trace.only(kind="forward").spans
    took = [round((end - start) * 1e9) for name, start, end in
            zip(spans.name, spans.start, spans.end, strict=True) if name == "Choosy"]  # fmt: skip
    one = 2 * 10 * 6 * 6
    assert took == [2 * one, one, 2 * one, one]


def timed(trace, step, rank, clock="device"):
    """Seconds of a rank's operations in a step, in order: (kind, seconds)."""
    spans = trace.only(rank=rank, step=step, lane="compute").spans
    work = spans[np.isin(spans.kind, ("forward", "backward", "update"))]
    start, end = (work.start, work.end) if clock == "device" else (work.wall_start, work.wall_end)
    return [(work.kind[i], end[i] - start[i]) for i in np.argsort(start, kind="stable")]


def test_shards_cost_by_their_examples_and_an_update_by_its_bytes():
    batch, factors = 301, [1, 1, 2]
    machine = classroom(3, step=None, link=Link(1e-3, 1e9), factors=factors)
    run = dlviz.launch(work, ranks=3, machine=machine, args=(batch,))
    assert "1 GFLOP/s, rank 2 takes 2x as long" in run.trace.meta["machine"]
    assert run.results == [104_488] * 3
    for rank, rows in enumerate((101, 100, 100)):
        products = [2 * rows * n for n in (64 * 128, 128 * 128, 128 * 10)]
        expected = [*products, *(2 * n for n in products[:0:-1]), products[0]]
        expected = [flops / 1e9 for flops in expected] + [3 * 104_488 / 1e9]
        for step in range(2):
            kinds, took = zip(*timed(run.trace, step, rank), strict=True)
            assert kinds == ("forward",) * 3 + ("backward",) * 3 + ("update",)
            np.testing.assert_allclose(took, np.array(expected) * factors[rank], rtol=1e-9)


def simulated(machine, batch):
    """The same step played by the simulator, a bucket for each layer with three more floats:
    whether its weight was used, whether others are trained now, and the number of examples; of two
    halves one has one float more, and both take as long."""
    flops = [2 * a * b * batch / 1e9 for a, b in SHAPES]
    layers = [
        Layer(str(i), flops[i], flops[i] * (2 if i else 1), 4 * (a * b + 4))
        for i, (a, b) in enumerate(SHAPES)
    ]
    return data_parallel(layers, machine, bucket_bytes=1, update=3 * 4 * WEIGHTS / 1e9)


@pytest.mark.parametrize("factors", [None, [1, 3], [Chance(0.4, 4, seed=3)] * 2])
def test_a_paced_step_of_ddp_takes_what_the_simulator_says(factors):
    """To the last operation, in device time; slow ranks too."""
    batch, ranks = 300, 2
    machine = classroom(ranks, step=None, link=Link(2e-3, 1e8), factors=factors)
    run = dlviz.launch(work, ranks=ranks, machine=machine, args=(batch, "ddp", 1, 0.0, False))
    found = simulated(machine, batch)
    for rank in range(ranks):
        begun = run.trace.only(rank=rank, step=0, kind="forward").spans.start.min()
        for lane, kind in (("compute", "forward"), ("compute", "backward"), ("compute", "update"),
                           ("comm", "collective")):  # fmt: skip
            real = run.trace.only(rank=rank, step=0, lane=lane, kind=kind).spans
            played = found.only(rank=rank, lane=lane, kind=kind).spans
            for column in ("start", "end"):
                times = np.sort(getattr(real, column)) - begun
                np.testing.assert_allclose(times, np.sort(getattr(played, column)), atol=1e-9)


def pipelined(comm, microbatches):
    from dlviz.parallel.pipeline import train_step
    from dlviz.schedules import make

    stages = [nn.Linear(4, 4) for _ in range(comm.size)]
    x = torch.ones(2 * microbatches, 4)
    schedule = make("1f1b", comm.size, microbatches)
    train_step(comm, stages, schedule, x, x, nn.functional.mse_loss)


@pytest.mark.sweep  # alone on the machine: a rank that comes late to its first action begins late
def test_a_paced_schedule_with_slow_ranks_takes_what_the_simulator_says():
    from dlviz.schedules import make

    factors = [1, Chance(0.5, 3, seed=2), 2]
    machine = classroom(3, link=Link(1e-3, math.inf), factors=factors)
    run = dlviz.launch(pipelined, ranks=3, machine=machine, args=(4,))
    found = simulate(make("1f1b", 3, 4), Costs.of(machine))
    work = ("forward", "backward")
    zero = run.trace.only(kind=work).spans.start.min()
    for rank in range(3):
        real, played = (trace.only(rank=rank, kind=work).spans for trace in (run.trace, found))
        np.testing.assert_allclose(np.sort(real.end) - zero, np.sort(played.end), atol=1e-9)


def test_a_pipeline_on_a_machine_without_a_step_asks_for_costs():
    with pytest.raises(dlviz.RankError, match=r"step=None has no time .* \(costs= to a pipeline\)"):
        dlviz.launch(pipelined, ranks=2, machine=classroom(2, step=None), args=(2,))


def wall_step(trace):
    return metrics.seconds_per_step(trace, "wall")


def test_a_run_whose_math_takes_longer_than_its_price_is_slower_by_the_wall_and_warns():
    """By device columns it takes its price: no speed-up may be read from them."""
    machine = classroom(1, step=None)
    run = dlviz.launch(work, ranks=1, machine=machine, args=(300, "ddp", 10**9, 0.3))
    priced = (6 * WEIGHTS - 2 * 64 * 128) * 300 / 1e9 + 3 * 104_488 / 1e9
    assert metrics.step_seconds(run.trace)[1] == pytest.approx(priced, rel=1e-6)
    assert wall_step(run.trace) > 0.3 > 5 * priced
    assert run.trace.meta["lateness"]["worst"] > 0.2 and run.trace.meta["warning"]


COMPUTE = (6 * WEIGHTS - 2 * 64 * 128) * BATCH / 1e9


@pytest.mark.slow
def test_a_step_on_one_and_on_four_ranks_takes_what_the_formula_says_by_the_device_clock():
    assert pytest.approx(0.3788, abs=5e-5) == COMPUTE
    for ranks in (1, 4):
        priced_step(ranks, COMPUTE, steps=1)


@pytest.mark.slow
@pytest.mark.sweep  # by the wall, on which other tests would delay a run
def test_four_ranks_are_about_three_times_as_fast_by_the_wall_clock():
    for attempt in attempts():
        one, four = (wall_step(priced_step(ranks, COMPUTE, steps=3)) for ranks in (1, 4))
        with attempt:
            assert one / four == pytest.approx(3.0, rel=0.1)


def priced_step(ranks, compute, steps):
    """The Trace of a paced run of so many steps, whose device columns take the formula's time."""
    machine = classroom(ranks, step=None, link=LAB)
    run = dlviz.launch(
        work, ranks=ranks, machine=machine, args=(BATCH, "ddp", 10**9, 0.0, True, steps)
    )
    rows = math.ceil(BATCH / ranks)  # of the largest shard
    own = compute * ranks * rows / BATCH
    expected = data_parallel_seconds(ranks, own, 104_488, 5e-3, 1e-8)
    device = float(np.median(metrics.step_seconds(run.trace)))
    flags = 2 * 3 * 4 * 7 / 4 * 1e-8  # of the bucket: six parameters' and the examples
    update = 3 * 104_488 / 1e9
    assert device == pytest.approx(expected + update + flags * (ranks > 1), abs=1e-6)
    return run.trace

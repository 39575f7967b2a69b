"""The host as memory: against one process of plain torch, and what is copied, held and refused."""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest
import torch
from side_by_side import of_size, on_each_size
from torch import nn

import dlviz
from dlviz.machine import classroom
from dlviz.parallel import offload, update_rules
from dlviz.parallel.offload import copies, layers
from dlviz.sim import stream_seconds

functional = nn.functional
FORMS = [("optimizer", 1), ("late", 1), ("stream", 0), ("stream", 1), ("stream", 2)]
WIDTH, DEPTH = 32, 8
LAYER = 4 * (WIDTH * WIDTH + WIDTH)  # bytes


class Odd(nn.Module):
    """Tokens to logits: a tied output, attention (which reads a child's parameters itself), a GRU,
    a frozen and two unused layers, one of another dtype, and a parameter of the model's own."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Embedding(7, 4)
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)
        self.unused = nn.Linear(3, 3)
        self.walk = nn.GRU(4, 4, batch_first=True)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.norm = nn.LayerNorm(4)
        self.out = nn.Linear(4, 7)
        self.out.weight = self.embed.weight
        self.bias = nn.Parameter(torch.zeros(7))
        self.to(dtype)
        self.other = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))

    def forward(self, x):
        e = self.embed(x)
        h = self.walk(e + self.attend(e, e, e, need_weights=False)[0])[0]
        return (self.out(self.norm(self.frozen(h) + h)) + self.bias)[:, -1]


def tokens():
    drawn = torch.Generator().manual_seed(1)
    draw = partial(torch.randint, 7, generator=drawn)
    return [(draw((rows, 5)), draw((rows,))) for rows in (6, 7, 2, 6)]


def deep():
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)])


def rows(steps=3):
    drawn = torch.Generator().manual_seed(1)
    return [
        (torch.randn(4, WIDTH, generator=drawn), torch.randint(3, (4,), generator=drawn))
        for _ in range(steps)
    ]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def alone(net, batches, late=False, clip=None, low=False):
    """Losses and state of one process; `late`, each update a step late; `low`, computed in
    bfloat16 beside `net`, the master."""
    own, optimizer, losses, waiting = [*net.parameters()], sgd(net.parameters()), [], []

    def update():
        for p, g in zip(own, waiting.pop(0), strict=True):
            p.grad = g
        if clip is not None:
            nn.utils.clip_grad_norm_(own, clip)
        optimizer.step()

    for x, y in batches:
        computes = net
        if low:
            computes, x = deep().to(torch.bfloat16), x.to(torch.bfloat16)
            computes.load_state_dict(net.state_dict())
        computes.zero_grad()
        loss = functional.cross_entropy(computes(x).float() if low else computes(x), y)
        loss.backward()
        losses.append(loss.item())
        grads = [p.grad for p in computes.parameters()]
        waiting.append(
            [None if g is None else g.to(p.dtype).clone() for p, g in zip(own, grads, strict=True)]
        )
        if not late or len(waiting) > 1:
            update()
    while waiting:
        update()
    return losses, net.state_dict()


def differs(result, expected, tolerance):
    losses, state = expected
    if result["losses"] != pytest.approx(losses, rel=tolerance, abs=tolerance):
        return "losses"
    how = {"rtol": tolerance, "atol": tolerance}
    return [n for n, t in result["state"].items() if not torch.allclose(t, state[n], **how)]


def all_forms(comm, dtype, clip):
    def train(group):
        how = {"rule": sgd, "clip": clip}
        return [
            offload.train(group, Odd(dtype), tokens(), how=form, prefetch=prefetch, **how)
            for form, prefetch in FORMS
        ]

    return on_each_size(comm, [[1, 2], [3]], train)


@pytest.mark.parametrize(
    ("dtype", "tolerance", "clip"),
    [(torch.float64, 1e-12, None), (torch.float64, 1e-12, 0.1), (torch.float32, 1e-6, None)],
)
def test_losses_and_parameters_equal_one_process(dtype, tolerance, clip):
    run = dlviz.launch(all_forms, 3, args=(dtype, clip))
    for size in (1, 2, 3):
        for results in of_size(run, size).values():
            for (form, prefetch), result in zip(FORMS, results, strict=True):
                expected = alone(Odd(dtype), tokens(), form == "late", clip)
                assert not differs(result, expected, tolerance), (size, form, prefetch)


def test_bfloat16_has_its_float32_master_on_the_host():
    expected = alone(deep(), rows(), low=True)
    for form in ("optimizer", "stream"):
        how = {"rule": sgd, "how": form, "precision": "bfloat16"}
        (result,) = dlviz.launch(offload.train, 1, args=(deep(), rows()), kwargs=how).results
        assert not differs(result, expected, 1e-6)
        assert {t.dtype for t in result.state.values()} == {torch.float32}


def without_copies(comm, lane, how):
    """A training in which nothing arrives in one direction."""
    whole = copies.Copies._copy

    def copy(self, comm, pairs, *more):
        while pairs and comm.name.endswith(lane):
            pairs.pop()[0].zero_()
        whole(self, comm, pairs, *more)

    copies.Copies._copy = copy
    return offload.train(comm, deep(), rows(), sgd, how=how)


@pytest.mark.parametrize("form", ["optimizer", "late", "stream"])
@pytest.mark.parametrize("lane", ["h2d", "d2h"])
def test_host_and_device_are_two_memories_so_that_a_skipped_copy_shows(lane, form):
    """On a CPU both are the same memory: an offload that moved nothing would pass all tests of
    values if a parameter had one storage only."""
    (result,) = dlviz.launch(without_copies, 1, args=(lane, form)).results
    expected = alone(deep(), rows(), form == "late")
    assert differs(result, expected, 1e-6)


@pytest.mark.parametrize(("precision", "each"), [("float32", 4), ("bfloat16", 2)])
@pytest.mark.parametrize("form", ["optimizer", "late", "stream"])
def test_bytes_of_copies_in_a_step(form, precision, each):
    how = {"how": form, "precision": precision, "rule": sgd}
    run = dlviz.launch(offload.train, 2, args=(deep(), rows()), kwargs=how)
    layer = LAYER // 4 * each
    up = {"stream": 2 * DEPTH - 1}.get(form, DEPTH) * layer  # the last stays for its backward
    for rank, result in enumerate(run.results):
        for step in range(3):
            spans = run.trace.only(rank=rank, step=step, kind="copy").spans
            moved = [spans.nbytes[spans.lane == lane].sum() for lane in ("h2d", "d2h")]
            assert moved == [up, DEPTH * layer], (rank, step)
        assert [result.bytes_up, result.bytes_down] == [3 * up, 3 * DEPTH * layer]


def counted(comm, prefetch):
    """The most layers with memory on the device at a time, as the layers see it."""
    here, most = set(), [0]
    take, free = layers.HostLayer.take, layers.HostLayer.free

    def counting_take(layer):
        here.add(layer.name)
        most.append(len(here))
        take(layer)

    def counting_free(layer):
        here.discard(layer.name)
        free(layer)

    layers.HostLayer.take, layers.HostLayer.free = counting_take, counting_free
    return offload.train(comm, deep(), rows(), how="stream", prefetch=prefetch), most


@pytest.mark.parametrize("prefetch", [0, 1, 2, 20])
def test_prefetch_holds_exactly_one_buffer_more(prefetch):
    ((result, most),) = dlviz.launch(counted, 1, args=(prefetch,)).results
    assert max(most) == result.layers_on_device == min(prefetch + 1, DEPTH)


@pytest.mark.parametrize(("milliseconds", "forwards"), [(4, (72, 44, 44)), (7, (96, 61, 61))])
def test_a_streamed_forward_takes_what_the_closed_form_says(milliseconds, forwards):
    for prefetch, expected in enumerate(forwards):
        how = {"how": "stream", "prefetch": prefetch, "bandwidth": LAYER / milliseconds * 1e3}
        run = dlviz.launch(
            offload.train, 1, args=(deep(), rows(2)), kwargs=how, machine=classroom(1)
        )
        for step in (0, 1):
            spans = run.trace.only(step=step).spans
            begins = spans.start[spans.kind == "copy"].min()
            ends = spans.end[spans.kind == "forward"].max()
            assert 1e3 * (ends - begins) == pytest.approx(expected, abs=1e-6)
            seconds = [0.005] * DEPTH, [milliseconds * 1e-3] * DEPTH
            assert ends - begins == pytest.approx(stream_seconds(*seconds, prefetch), abs=1e-9)
        assert {"compute", "h2d", "d2h", "host"} == {*spans.lane}
        on_host = spans[(spans.lane == "host") & (spans.kind == "update")]
        assert (on_host.start < spans.end[spans.kind == "backward"].max()).sum() >= DEPTH // 2


def test_a_late_update_has_the_next_step_to_hide_behind():
    """Clipped, all 8 updates of 5 ms follow the last gradient."""
    how, seconds = {"bandwidth": LAYER / 1e-3, "clip": 1.0}, {}
    for form in ("optimizer", "late"):
        run = dlviz.launch(
            offload.train, 1, args=(deep(), rows(4)), kwargs={**how, "how": form},
            machine=classroom(1),
        )  # fmt: skip
        steps = run.trace.only(step={1, 2}).spans
        seconds[form] = steps.end.max() - steps.start.min()
    compute = 2 * DEPTH * 3 * 0.005
    assert compute <= seconds["late"] < compute + 0.02
    assert compute + 2 * DEPTH * 0.005 < seconds["optimizer"]


def test_a_stated_bandwidth_holds_on_the_wall_clock_too():
    how = {"bandwidth": LAYER / 5e-3, "how": "stream"}
    run = dlviz.launch(offload.train, 1, args=(deep(), rows(1)), kwargs=how)
    spans = run.trace.only(kind="copy").spans
    assert (spans.end - spans.start).min() >= 5e-3


def test_streaming_fits_where_the_model_does_not():
    model = DEPTH * LAYER
    train = partial(dlviz.launch, offload.train, 1, args=(deep(), rows()))
    (result,) = train(kwargs={"how": "stream", "device_bytes": model}).results
    assert result.device_peak < model < result.host_peak
    run = train(kwargs={"how": "stream"})
    memory = run.trace.memory
    assert memory.nbytes[memory.what == "device"].max() == run.results[0].device_peak
    held = r"layer 1, 4,224 bytes, does not fit on the device: 3,448 bytes are missing of "
    with pytest.raises(dlviz.RankError, match=held + "device_bytes=5000, of which layer 0 4,224"):
        train(kwargs={"how": "stream", "device_bytes": 5000})
    with pytest.raises(dlviz.RankError, match="fit on the device: .* missing of device_bytes=17"):
        train(kwargs={"device_bytes": 17000})
    with pytest.raises(dlviz.RankError, match=r"layer 0, 4,224 .*: 224 bytes are missing of .*=4000"
                                              ", of which nothing is held"):  # fmt: skip
        train(kwargs={"how": "stream", "device_bytes": 4000})
    with pytest.raises(dlviz.RankError, match="does not fit on the host: .* of host_bytes=50000"):
        train(kwargs={"host_bytes": 50000})


def test_gradients_that_leave_slowly_hold_no_more_than_their_buffers():
    how = {"bandwidth": LAYER / 0.01, "rule": "sgd"}
    for prefetch in (0, 1):
        how["prefetch"] = prefetch
        (result,) = dlviz.launch(offload.train, 1, args=(deep(), rows(1)), kwargs=how).results
        copied, computed = prefetch + 1, 3  # a layer's gradients, temporaries, activations
        assert result.device_peak < (DEPTH + copied + computed) * LAYER


def reading_across(comm, where):
    found = []
    callback = {"callback": lambda step, loss, net: found.append(net[1].weight.data)}

    class Reads(update_rules.SGD):
        def move(self, w, g, t):
            w += found[0].sum()

    def loss(outputs, labels):
        if where == "host":
            found.append(outputs)
        across = found[0].sum() if where == "device" and found else 0.0
        return functional.cross_entropy(outputs, labels) + across

    rule = Reads(0.1) if where == "host" else "sgd"
    offload.train(comm, deep(), rows(), rule, how="stream", loss=loss, **callback)


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("device", "aten.sum.default on the device reads 1.weight of the parameters of layer 1, "
         "which lies on the host: copy it first"),
        ("host", "aten.sum.default on the host reads a tensor of what is computed on the device"),
    ],
)  # fmt: skip
def test_an_operation_that_reads_the_other_memory_is_refused(where, says):
    with pytest.raises(dlviz.RankError, match=says):
        dlviz.launch(reading_across, 1, args=(where,))


class Both(nn.Module):
    """An operation that reads two layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return functional.linear(x, self.a.weight, self.b.bias)


class Detached(nn.Linear):
    """Backward reads the weight after its gradient is known."""

    def forward(self, x):
        return super().forward(functional.linear(x, self.weight.detach()).tanh())


@pytest.mark.parametrize(
    ("net", "how", "says"),
    [
        (Both(), {"prefetch": 0}, "reads layer b and layer a at once, and the device has too few"),
        (nn.Sequential(nn.Linear(4, 4), Detached(4, 4)), {}, "backward reads layer 1 after it had"),
        (Both(), {}, "a paced run needs bandwidth="),
        (Both(), {"prefetch": -1}, "prefetch=-1 has to be a whole number, 0 or more"),
        (Both(), {"how": "swap"}, "how='swap' is not known: use 'optimizer', 'late' or 'stream'"),
        (Both(), {"precision": "int8"}, "precision='int8' is not known"),
        (Both(), {"bandwidth": 0.0}, "offload: bandwidth=0.0 has to be a number, above 0"),
        (Both(), {"device_bytes": 0}, "device_bytes=0 has to be a whole number, 1 or more"),
        (Both().requires_grad_(False), {}, "the model has no parameter to train"),
    ],
)
def test_what_cannot_be_is_refused(net, how, says):
    args, how = (net, [(torch.ones(2, 4), torch.zeros(2).long())]), {"how": "stream", **how}
    machine = classroom(1) if "paced" in says else None
    with pytest.raises(dlviz.RankError, match=says):
        dlviz.launch(offload.train, 1, args=args, kwargs=how, machine=machine)


def dying(comm):
    class Dies(update_rules.SGD):
        def move(self, w, g, t):
            if comm.rank == 1 and t == 2:  # on the host, when the gradients have come
                os.kill(os.getpid(), signal.SIGKILL)
            super().move(w, g, t)

    return offload.train(comm, deep(), rows(), Dies(0.1), how="stream")


def test_the_others_say_which_rank_died_between_copy_and_update():
    with pytest.raises(dlviz.RankError, match="rank 1 was killed by SIGKILL"):
        dlviz.launch(dying, 3, timeout=30)

"""Every strategy, with every update rule, against one process of plain torch; and what each sends
and hides."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import dlviz
from dlviz import metrics
from dlviz.machine import Device, Machine, Topology
from dlviz.parallel import STRATEGIES, data, update_rules

# Ranks, and whether every strategy is tried with every rule that its number of ranks leaves.
GRID = [*((n, False) for n in (1, 3, 7)),
        *(pytest.param(n, True, marks=pytest.mark.sweep) for n in (1, 2, 3, 4, 7))]  # fmt: skip
ALL_COMPUTE = ("ddp", "naive", "central", "late_all_reduce", "sufficient_factors")
SERVED = {  # by ranks that do not compute
    "sync_server": {},
    "sync_server by two": {"servers": 2},
    "stale_synchronous": {"bound": 0},
}
CUT = (
    "model",
    "placement",
    "tensor",
    "spatial",
    "channel_filter",
    "cnn_hybrid",
    "3d",
)  # the model, not the batch, or not the batch alone
PADDING = 0
OPTIMIZERS = {
    "sgd": lambda p, lr: torch.optim.SGD(p, lr),
    "decay": lambda p, lr: torch.optim.SGD(p, lr),
    "momentum": lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9),
    "nesterov": lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9, nesterov=True),
    "adagrad": lambda p, lr: torch.optim.Adagrad(p, lr),
    "rmsprop": lambda p, lr: torch.optim.RMSprop(p, lr),
    "adam": lambda p, lr: torch.optim.Adam(p, lr),
}


class Speller(nn.Module):
    """Tokens (B, n) to logits, by a recurrent layer; one parameter, of another dtype, is unused."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.embed = nn.Embedding(7, 4).double()
        self.walk = nn.GRU(4, 5, batch_first=True).double()
        self.out = nn.Linear(5, 7).double()
        self.bias = nn.Parameter(torch.zeros(7).double())
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, tokens):
        return self.out(self.walk(self.embed(tokens))[0]) + self.bias


def loss(outputs, targets):
    return nn.functional.cross_entropy(
        outputs.flatten(0, 1), targets.flatten(), ignore_index=PADDING
    )


def weight(tokens):
    return (tokens != PADDING).sum()


def batches():
    """Rows of unequal length; the last batch is shorter than 7 ranks."""
    generator = torch.Generator().manual_seed(2)
    found = []
    for rows in (13, 13, 4):
        tokens = torch.randint(1, 7, (rows, 6), generator=generator)
        lengths = torch.randint(1, 7, (rows, 1), generator=generator)
        tokens = torch.where(torch.arange(6) < lengths, tokens, PADDING)
        found.append((tokens, (7 - tokens) * (tokens != PADDING)))
    return found


def one_process(rule, late=False):
    """Losses and parameters; `late` applies each gradient one step late, the last at the end."""
    model, lr = Speller(), 0.05
    optimizer = OPTIMIZERS[rule](model.parameters(), lr)
    gamma = 0.99 if rule == "decay" else 1.0
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma)
    losses, waiting = [], []

    def move(gradients):
        for p, gradient in zip(model.parameters(), gradients, strict=True):
            p.grad = gradient
        optimizer.step()
        schedule.step()

    for tokens, targets in batches():
        model.zero_grad()
        value = loss(model(tokens), targets)
        value.backward()
        losses.append(value.item())
        waiting.append([p.grad for p in model.parameters()])
        if len(waiting) > late:
            move(waiting.pop(0))
    for gradients in waiting:
        move(gradients)
    return losses, model.state_dict()


def worker(comm, wide):
    """The results of each strategy with its rules: on three ranks one data-parallel and one served
    strategy with every rule, the others with two; on other numbers of ranks with one."""
    found = {}
    served = [name for name in SERVED if comm.size > SERVED[name].get("servers", 1)]
    for name in [*ALL_COMPUTE, "offload", *served]:
        every = name == "ddp" or name.startswith("sync_server") and comm.size < 5
        rules = update_rules.NAMES if every else ["momentum", "adam"]
        if not wide and (comm.size != 3 or name == "sync_server by two"):
            rules = ["momentum"]
        for rule in rules:
            options = {"loss": loss, "weight": weight, "lr": 0.05, **SERVED.get(name, {})}
            train = STRATEGIES[name.split()[0]]
            found[name, rule] = train(comm, Speller(), batches(), rule, **options)
    own = update_rules.make("adam", lr=0.05)
    options = {"loss": loss, "weight": weight, "bucket_bytes": 200}
    found["ddp", "adam"] = data.train(comm, Speller(), batches(), own, **options)
    return found


@pytest.mark.parametrize(("ranks", "wide"), GRID)
def test_every_strategy_and_rule_equals_one_process(ranks, wide):
    run = dlviz.launch(worker, ranks, args=(wide,))
    run.trace.validate()
    for (name, rule), result in run.results[0].items():
        losses, state = one_process(rule, late=name == "late_all_reduce")
        # A rule that divides by the gradient's own size magnifies the last digit of a small one.
        within = 1e-12 if rule in ("sgd", "decay", "momentum", "nesterov") else 1e-9
        assert result["losses"] == pytest.approx(losses, rel=1e-9), (name, rule)
        for other in run.results:
            for key, value in state.items():
                mine = other[name, rule]["state"][key]
                assert (mine - value).norm() <= within * value.norm(), (name, rule, key)
                assert torch.equal(mine, result["state"][key])  # all ranks hold the same bits


def trained_on_digits(name, machine=None, steps=4, ranks=4, **options):
    model = dlviz.models.MLP()
    images = dlviz.datasets.batches(*dlviz.datasets.digits("train"), batch=64, steps=steps)
    args = (copy.deepcopy(model), list(images), "sgd")
    run = dlviz.launch(STRATEGIES[name], ranks, machine=machine, args=args, kwargs=options)
    return model, run.trace


def test_the_first_form_sends_every_gradient_to_rank_0_and_the_net_back():
    model, trace = trained_on_digits("central", steps=3)
    size = sum(p.nbytes for p in model.parameters())
    steps = trace.only(step=range(3))
    sent, per_step = metrics.bytes_sent(steps), size * 3
    tail = 4 * (len([*model.parameters()]) + 1) * 3  # a flag for each gradient, and the weight
    assert sent.tolist() == [3 * per_step] + [per_step + tail] * 3
    received = np.bincount(steps.messages.dst, weights=steps.messages.nbytes)
    assert received.tolist() == [3 * (per_step + tail)] + [per_step] * 3
    updates = steps.only(kind="update").spans
    assert set(updates.rank) == {0} and len(updates) == 3


@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine makes it late
def test_a_late_all_reduce_is_hidden_and_a_bucketed_one_is_not():
    machine = dlviz.machine.classroom(2)
    exposed = {}
    for name in ("late_all_reduce", "ddp"):
        _, trace = trained_on_digits(name, machine, ranks=2)
        trace.validate()
        exposed[name] = [
            trace.only(rank=0, step=step, kind="wait", lane="compute").spans for step in (1, 2, 3)
        ]
    for late, ddp in zip(exposed["late_all_reduce"], exposed["ddp"], strict=True):
        assert (late.end - late.start).sum() == 0
        assert (ddp.end - ddp.start).sum() > 1e-3  # the latency of a ring of two


@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")
def test_an_update_is_charged_its_bytes_and_an_idle_rank_nothing():
    device = Device("test", flops=1e8, memory=1e9, memory_bandwidth=1e8)
    link = dlviz.machine.Link(1e-3, 1e9)
    machine = Machine(device, Topology.switch(3, link), step=None)
    images, labels = dlviz.datasets.digits("train")
    model = dlviz.models.MLP((64, 32, 10))
    args = (model, [(images[:2], labels[:2])], "sgd")
    for name in ALL_COMPUTE:
        run = dlviz.launch(STRATEGIES[name], 3, machine=machine, args=args)
        updates = run.trace.only(kind="update").spans
        seconds = 3 * sum(p.nbytes for p in model.parameters()) / device.memory_bandwidth
        np.testing.assert_allclose(updates.end - updates.start, seconds, rtol=1e-9)
        busy = metrics.busy(run.trace)
        # A rank without rows multiplies the factors of the others.
        assert (busy[2] == 0) == (name != "sufficient_factors") and busy[0] == busy[1] > 0, name


def test_the_registry_names_what_it_loads():
    others = {"async_server", "hogwild", "easgd", "local_sgd", "gossip", "ensemble"}
    others |= {*CUT, "offload", "zero"}
    named = {*ALL_COMPUTE, *(name.split()[0] for name in SERVED), *others}
    assert repr(STRATEGIES).startswith("Strategies(ddp, naive, central")
    assert set(STRATEGIES) == {*STRATEGIES.lines} == named
    assert all(train.__name__ in ("train", name) for name, train in STRATEGIES.items())
    assert all(train.__doc__ for train in STRATEGIES.values())
    with pytest.raises(KeyError):
        STRATEGIES["gpipe"]


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        ((torch.ones(4, 2), torch.zeros(3)), "batch 1 has 4 inputs and 3 labels"),
        ((torch.ones(0, 2), torch.zeros(0)), "batch 1 has 0 inputs and 0 labels"),
    ],
)
def test_batches_of_unequal_parts_are_refused_before_training(batch, says):
    good = torch.ones(4, 2), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(dlviz.RankError, match=says) as error:
        dlviz.launch(data.train, 1, args=(nn.Linear(2, 2), [good, batch]))
    assert not (error.value.trace.spans.step >= 0).any()


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name not in CUT])
def test_a_batch_of_only_padding_is_refused(name):
    nothing = torch.zeros(4, 6, dtype=torch.int64)
    args, options = (Speller(), [(nothing, nothing)], "sgd"), {"loss": loss, "weight": weight}
    with pytest.raises(dlviz.RankError, match="weighs 0 on all ranks together"):
        dlviz.launch(STRATEGIES[name], 2, args=args, kwargs=options)

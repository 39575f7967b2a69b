"""Where a batch is cut, its loss and gradients are those of one process, whatever the loss is the
mean of; or the loss is refused."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional

import dlviz
from dlviz import schedules
from dlviz.models.mean_of import MeanOverRows, weight_on
from dlviz.parallel import data, hybrid
from dlviz.parallel.pipeline import gpipe_by_hand, train_step

CLASSES, TOKENS = 3, 4
# Rows of 4, 1, 2, 0, 3, 2, 0 and 0 targets: of 4 microbatches the last has none.
COUNTS = (4, 1, 2, 0, 3, 2, 0, 0)


def batch():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(len(COUNTS), 5, generator=generator, dtype=torch.float64)
    y = torch.randint(0, CLASSES, (len(COUNTS), TOKENS), generator=generator)
    return x, y.masked_fill(torch.arange(TOKENS) >= torch.tensor(COUNTS)[:, None], -100)


def network():
    torch.manual_seed(1)
    last = nn.Sequential(nn.Linear(6, TOKENS * CLASSES), nn.Unflatten(1, (TOKENS, CLASSES)))
    return [nn.Sequential(nn.Linear(5, 6), nn.Tanh()).double(), last.double()]


def loss(outputs, targets):
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def targets_in(inputs, targets):
    return (targets != -100).sum()


def one_process():
    """Loss, gradients, and the parameters after a step of SGD."""
    stages, (x, y) = network(), batch()
    value = loss(nn.Sequential(*stages)(x), y)
    value.backward()
    return value.item(), [[p.grad for p in stage.parameters()] for stage in stages]


def gradients(stage):
    return [p.grad for p in stage.parameters()]


def worker(comm):
    found, (x, y) = {}, batch()
    for name in ("gpipe", "1f1b", "zb_h1"):
        stages, schedule = network(), schedules.make(name, 2, 4)
        value = train_step(comm, stages, schedule, x, y, loss, weight=targets_in)
        found[name] = value, gradients(stages[comm.rank])
    stage = network()[comm.rank]
    value = gpipe_by_hand.step(comm, stage, x, y, loss, 4, weight=targets_in)
    found["by hand"] = value, gradients(stage)
    for mesh in ({"dp": 1, "pp": 2, "tp": 1}, {"dp": 2, "pp": 1, "tp": 1}):
        stages = network() if mesh["pp"] == 2 else [nn.Sequential(*network())]
        before = [p.detach().clone() for p in nn.Sequential(*network()).parameters()]
        options = {"loss": loss, "weight": targets_in, "lr": 1.0, "microbatches": 4, **mesh}
        trained = hybrid.train(comm, stages, [(x, y)], **options)
        found[str(mesh)] = trained["losses"][0], moved(before, trained["state"])
    for method in ("ddp", "naive"):
        net = nn.Sequential(*network())
        before = [p.detach().clone() for p in net.parameters()]
        options = {"loss": loss, "weight": targets_in, "lr": 1.0, "method": method}
        trained = data.train(comm, net, [(x, y)], **options)
        found[method] = trained["losses"][0], moved(before, trained["state"])
    return found


def moved(before, state):
    """The gradients by which a step at rate 1 went; none where the state lies on another rank."""
    return [p - q for p, q in zip(before, state.values(), strict=True)] if state else []


def test_weighed_by_targets_every_cut_has_loss_and_gradients_of_one_process():
    value, expected = one_process()
    for rank, found in enumerate(dlviz.launch(worker, 2).results):
        for name, (mean, grads) in found.items():
            of_stage = name in ("gpipe", "1f1b", "zb_h1", "by hand")
            those = expected[rank] if of_stage else [*expected[0], *expected[1]]
            assert mean == pytest.approx(value, abs=1e-12), name
            assert len(grads) == len(those) or not grads and rank, name
            for a, b in zip(grads, those, strict=False):
                assert (a - b).abs().max() < 1e-12, name


def test_a_microbatch_without_a_target_is_no_step_of_a_schedule_that_does_not_flush():
    """Momentum alone would move the weights."""

    def steps(comm, many):
        stages, (x, y) = network(), batch()
        rule = torch.optim.SGD(stages[comm.rank].parameters(), lr=0.1, momentum=0.9)
        schedule = schedules.make("pipedream", 2, many)
        rows = 2 * many
        train_step(comm, stages, schedule, x[:rows], y[:rows], loss, rule, weight=targets_in)
        return [p.detach() for p in stages[comm.rank].parameters()]

    found = dlviz.launch(lambda comm: (steps(comm, 3), steps(comm, 4)), 2).results
    for three, four in found:  # the fourth has none
        assert all(torch.equal(a, b) for a, b in zip(three, four, strict=True))


def of_classes(outputs, targets):
    weight = torch.tensor([1.0, 5.0, 2.0], dtype=outputs.dtype)
    return functional.cross_entropy(outputs, targets, weight=weight)


LOSSES = {
    "tokens": loss,
    "weighted classes": lambda o, t: of_classes(o.flatten(0, 1), t.clamp(min=0).flatten()),
    "a sum": lambda o, t: o.square().sum(),
    "a root": lambda o, t: o.square().mean().sqrt(),
    "of a fixed number of rows": lambda o, t: (o - torch.ones(2, TOKENS, CLASSES)).square().mean(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_is_no_mean_over_rows_is_recognised(name):
    x, y = batch()
    outputs = nn.Sequential(*network())(x)
    tried = MeanOverRows(LOSSES[name])
    with pytest.raises(ValueError, match=r"give weight=, a function of \(inputs, labels\)"):
        for rows in (slice(0, 2), slice(2, 4), slice(4, 6)):
            tried(outputs[rows], y[rows])
        tried.check()


def is_refused(tried, *parts):
    for outputs, labels in parts:
        tried(outputs, labels)
    try:
        tried.check()
    except ValueError:
        return True
    return False


def test_no_pattern_of_ignored_rows_passes_for_a_mean_over_rows():
    """Whole, or in two parts of as many rows."""
    generator = torch.Generator().manual_seed(0)
    for rows in range(2, 9):
        outputs = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
        labels = torch.randint(3, (rows,), generator=generator)
        for ignored in itertools.product((False, True), repeat=rows):
            given = labels.masked_fill(torch.tensor(ignored), 7)
            parts = zip(outputs.tensor_split(2), given.tensor_split(2), strict=True)
            for given_in in ([(outputs, given)], parts):
                tried = MeanOverRows(lambda o, t: functional.cross_entropy(o, t, ignore_index=7))
                assert is_refused(tried, *given_in) == (0 < sum(ignored) < rows), ignored


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_a_mean_over_rows_is_not_refused_for_its_rounding(dtype, size):
    generator = torch.Generator().manual_seed(0)
    outputs = (size * torch.randn(700, 30, generator=generator)).to(dtype)
    others = (size * torch.randn(700, 30, generator=generator)).to(dtype)
    labels = torch.randint(0, 30, (700,), generator=generator)
    for each, targets in (
        (functional.cross_entropy, labels),
        (functional.mse_loss, others),
        (lambda o, t: (o * t).mean(), others),  # terms that cancel
        (lambda o, t: o.mul_(2).sigmoid_().mean(), others),  # in place
    ):
        tried = MeanOverRows(each)
        for start, end in ((0, 1), (1, 300), (300, 301), (301, 700)):
            tried(outputs[start:end].clone(), targets[start:end])
        tried.check()


CUTS = {
    "pipeline": lambda comm, x, y: train_step(
        comm, network(), schedules.make("gpipe", 2, 4), x, y, loss
    ),
    "by hand": lambda comm, x, y: gpipe_by_hand.step(comm, network()[comm.rank], x, y, loss, 4),
    "hybrid": lambda comm, x, y: hybrid.train(
        comm, network(), [(x, y)], loss=loss, dp=1, pp=2, tp=1, microbatches=4
    ),
    "data": lambda comm, x, y: data.train(comm, nn.Sequential(*network()), [(x, y)], loss=loss),
}


@pytest.mark.filterwarnings("ignore:rank 0, step 0. the loss of its part:RuntimeWarning")
@pytest.mark.parametrize("cut", CUTS)
def test_no_cut_takes_it_for_one(cut):
    with pytest.raises(dlviz.RankError, match="it is no mean over rows; make it a mean, and give"):
        dlviz.launch(CUTS[cut], 2, args=batch(), timeout=30)


def test_a_loss_of_torchs_has_a_weight_where_its_rows_differ():
    """Without one clients of a rank train together."""
    x, y = torch.ones(3, 2), torch.tensor([0, 1, -100])
    heavy = nn.CrossEntropyLoss(torch.tensor([1.0, 3.0]))
    assert weight_on(functional.cross_entropy, [(x[:2], y[:2])]) is None
    for loss_, labels, expected in (
        (functional.cross_entropy, y, 2),
        (heavy, y, 4),
        (heavy, y[:2], 4),
        (functional.cross_entropy, torch.tensor([[0, 1], [1, -100]]), 3),
    ):
        weight = weight_on(loss_, [(x, labels)])
        assert weight is not None and float(weight(x, labels)) == expected


@pytest.mark.parametrize("kind", [nn.MSELoss, nn.HuberLoss, nn.L1Loss, nn.SmoothL1Loss])
def test_a_mean_over_elements_is_not_tried_but_where_labels_are_of_another_shape(kind):
    loss, called = kind(), []
    loss.register_forward_hook(lambda *_: called.append(1))
    checks, outputs = MeanOverRows(loss), torch.tensor([0.0, 3, 1, 5, 2, 7])[:, None]
    for part in outputs.split(3):
        assert torch.equal(checks(part, part + 1), kind()(part, part + 1))
    checks.check()
    assert len(called) == 2  # once for each part
    broadcast = MeanOverRows(loss)  # (3, 1) and (3,) make (3, 3): no mean over rows
    with pytest.warns(UserWarning, match="broadcast"), pytest.raises(ValueError, match="the mean"):
        for part in outputs.split(3):
            broadcast(part, torch.tensor([0.0, 2, 7]))
        broadcast.check()


def test_a_sum_over_elements_is_tried():
    checks, outputs = MeanOverRows(nn.MSELoss(reduction="sum")), torch.randn(6, 2)
    for part in outputs.split(3):
        checks(part, torch.zeros_like(part))
    with pytest.raises(ValueError, match="the mean over its parts"):
        checks.check()

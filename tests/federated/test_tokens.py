"""A client counts by what its loss is a mean of: a token loss in rounds is that of one process."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import dlviz
from dlviz.federated import Arrivals, Secure, train
from dlviz.federated.local import LocalTraining
from dlviz.models import token_loss

CLASSES, TOKENS, LR = 3, 4, 0.5
# Of each client the targets of its rows: 7, 3, 5 and none.
COUNTS = (4, 3), (1, 0, 2, 0), (2, 3), (0, 0)


def clients():
    draw = torch.Generator().manual_seed(0)
    found = []
    for counts in COUNTS:
        x = torch.randn(len(counts), 5, generator=draw, dtype=torch.float64)
        y = torch.randint(0, CLASSES, (len(counts), TOKENS), generator=draw)
        padding = torch.arange(TOKENS) >= torch.tensor(counts)[:, None]
        found.append((x, y.masked_fill(padding, -100)))
    return found


def network():
    torch.manual_seed(1)
    shape = nn.Unflatten(1, (TOKENS, CLASSES))
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, TOKENS * CLASSES), shape).double()


def loss(outputs, targets):
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def targets_in(inputs, targets):
    return (targets != -100).sum()


def sgd(net, x, y):
    """A step of plain torch; the loss before it."""
    net.zero_grad()
    value = loss(net(x), y)
    value.backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= LR * p.grad
    return value.item()


def gap(state, net):
    return max((state[name] - p).abs().max().item() for name, p in net.state_dict().items())


CASES = {
    "weight": {"loss": loss, "weight": targets_in},
    "token loss": {"loss": token_loss},
    "sum": {"loss": loss, "weight": targets_in, "secure": Secure(None, 64.0, 62)},
    "modelled": {"loss": token_loss, "arrivals": Arrivals(1.0, factors=[1.0, 2.0, 3.0, 4.0])},
    "batches": {"loss": loss, "weight": targets_in, "batch": 1, "epochs": 2},
}


@pytest.fixture(scope="module")
def found():
    def worker(comm):
        return {
            name: train(comm, network(), clients(), rounds=2, lr=LR, **options)
            for name, options in CASES.items()
        }

    return [dlviz.launch(worker, ranks).results[0] for ranks in (2, 4)]


@pytest.mark.parametrize("name", ["weight", "token loss", "sum", "modelled"])
def test_fedsgd_on_unequal_numbers_of_target_tokens_is_one_process_on_all_of_them(found, name):
    net = network()
    losses = [sgd(net, *(torch.cat(parts) for parts in zip(*clients(), strict=True))) for _ in "12"]
    for each in found:
        assert gap(each[name]["state"], net) < (1e-9 if name == "sum" else 1e-12)
        for record, expected in zip(each[name]["rounds"], losses, strict=True):
            assert record.rejected == {3: "has no data"} and record.unchanged == ""
            if name != "sum":  # whose server receives no losses
                assert record.loss == pytest.approx(expected, abs=1e-12)
    if name == "modelled":  # a step each, 1, 2 and 3 s: by examples, not by targets
        assert [record.seconds for record in found[0][name]["rounds"]] == pytest.approx([3.0, 3.0])


def test_a_minibatch_of_padding_alone_is_left_out_and_losses_count_their_targets(found):
    how, net = LocalTraining(2, 1, LR, loss, 0.0, 0), network()
    for number in range(2):
        ends, losses = [], 0.0
        for k, (x, y) in enumerate(clients()):
            ends.append(copy.deepcopy(net))
            for epoch in range(2):
                for row in how.order(number, k, epoch, len(y)).split(1):
                    if targets := targets_in(x[row], y[row]):
                        losses += targets.item() * sgd(ends[k], x[row], y[row])
        counts = [sum(each) for each in COUNTS]
        for each in found:
            record = each["batches"]["rounds"][number]
            assert record.loss == pytest.approx(losses / 2 / sum(counts), abs=1e-12)
        with torch.no_grad():
            for p, *moved in zip(net.parameters(), *(e.parameters() for e in ends), strict=True):
                p += sum(c / sum(counts) * (m - p) for c, m in zip(counts, moved, strict=True))
    for each in found:
        assert gap(each["batches"]["state"], net) < 1e-12


OTHER_MEANS = {
    "ignored targets": loss,
    "a sum": lambda o, t: functional.cross_entropy(
        o.flatten(0, 1), t.clamp(min=0).flatten(), reduction="sum"
    ),
}


@pytest.mark.parametrize("name", OTHER_MEANS)
def test_a_loss_that_is_no_mean_over_rows_is_refused_unless_its_weight_is_given(name):
    how = {"rounds": 1, "loss": OTHER_MEANS[name]}
    with pytest.raises(dlviz.RankError, match="it is no mean over rows; make it a mean, and give"):
        dlviz.launch(train, 2, args=(network(), clients()), kwargs=how)


def test_ignored_labels_of_the_default_loss_do_not_count_and_no_weight_is_negative():
    net, x = nn.Linear(5, 3), torch.ones(6, 5)
    y = torch.tensor([0, 1, 2, -100, -100, 1])
    data = [(x, y), (x[:2], y[:2])]
    expected = functional.cross_entropy(net(torch.cat([x, x[:2]])), torch.cat([y, y[:2]]))
    (found, *_) = dlviz.launch(train, 2, args=(net, data), kwargs={"rounds": 1}).results
    assert found.losses == pytest.approx([expected.item()], rel=1e-6)
    with pytest.raises(dlviz.RankError, match="a batch of client 0 weighs -1"):
        how = {"rounds": 1, "weight": lambda inputs: -1}
        dlviz.launch(train, 2, args=(net, data), kwargs=how)

"""The options that federated training shares with all strategies, beside one process of torch."""

from __future__ import annotations

import copy
import math
from functools import partial

import federated_oracle as oracle
import pytest
import torch
from federated_oracle import dealt, gap, model
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, StepLR

import dlviz
from dlviz.federated import Secure, train
from dlviz.federated.local import LocalTraining
from dlviz.federated.stacked import clipped_each

EXACT = 1e-12
ROUNDS, CLIP, MU = 3, 0.3, 0.7
HOW = {"rounds": ROUNDS, "epochs": 2, "batch": 8, "clip": CLIP, "proximal": MU}


def rates(number):
    return 0.4 / (1 + number)


def scheduler(optimizer):
    return StepLR(optimizer, 1, 0.5)


FORMS = {  # rates as given, and what they come to
    "a function": ({"lr_schedule": rates}, rates),
    "a scheduler": ({"lr_schedule": scheduler, "lr": 0.4}, lambda number: 0.4 * 0.5**number),
}


def own_squares(outputs, labels):
    """A loss that vmap has to batch."""
    return (outputs - nn.functional.one_hot(labels, 10)).square().sum(1).mean()


LOSSES = {"cross entropy": nn.functional.cross_entropy, "one's own": own_squares}


def clipped_sgd(net, data, orders, loss, lr):
    """A client of plain torch: its model, and its mean loss."""
    trained, total, seen = copy.deepcopy(net), 0.0, 0
    rule = torch.optim.SGD(trained.parameters(), lr)
    for rows in (rows for epoch in orders for rows in epoch):
        rule.zero_grad()
        value = loss(trained(data[0][rows]), data[1][rows])
        both = zip(trained.parameters(), net.parameters(), strict=True)
        tie = sum((p - w.detach()).square().sum() for p, w in both)
        (value + MU / 2 * tie).backward()
        nn.utils.clip_grad_norm_(trained.parameters(), CLIP)
        rule.step()
        total, seen = total + value.item() * len(rows), seen + len(rows)
    return trained, total / seen


def replayed(clients, loss, rate_of):
    """Of each round the model, and of each client its model and loss."""
    net, found = model(), []
    for number in range(ROUNDS):
        how = LocalTraining(HOW["epochs"], HOW["batch"], 0.1, loss, 0, 0)
        each = [
            clipped_sgd(
                net, data, [how.order(number, k, epoch, len(data[1])).split(how.batch)
                            for epoch in range(how.epochs)], loss, rate_of(number),
            )
            for k, data in enumerate(clients)
        ]  # fmt: skip
        sizes = [len(labels) for _, labels in clients]
        update = oracle.averaged(net, [end for end, _ in each], sizes)
        with torch.no_grad():
            for p, change in zip(net.parameters(), update, strict=True):
                p += change
        found.append((copy.deepcopy(net.state_dict()), each))
    return found


def note(seen, number, loss, net):
    seen.append((number, loss, copy.deepcopy(net.state_dict())))


def spoil(net):
    """A score of the model, which is a copy."""
    assert not net.training and not torch.is_grad_enabled()
    found = sum(p.sum().item() for p in net.parameters())
    for p in net.parameters():
        p.zero_()
    return found


def each_form(comm, clients):
    found = {}
    for name, (given, _) in FORMS.items():
        for what, loss in LOSSES.items():
            seen = []
            how = {**HOW, **given, "loss": loss, "callback": partial(note, seen)}
            how |= {"evaluate": spoil, "evaluate_every": 2}
            found[name, what] = train(comm, model(), clients, **how), seen
    return found


@pytest.mark.parametrize("ranks", [3, 5])
def test_clip_rates_callbacks_and_evaluations_equal_one_process(ranks):
    """On 3 ranks the clients of a process are trained as one; on 5 each alone."""
    clients = dealt(4)
    sizes = [len(labels) for _, labels in clients]
    results = dlviz.launch(each_form, ranks, args=(clients,)).results
    for (name, what), (result, seen) in results[0].items():
        expected = replayed(clients, LOSSES[what], FORMS[name][1])
        assert gap(result.state, expected[-1][0]) < EXACT
        assert result.evaluations == pytest.approx(
            {2: sum(p.sum().item() for p in expected[1][0].values())}, abs=1e-10
        )
        assert [math.isnan(each.score) for each in result.rounds] == [True, False, True]
        for number, (state, each) in enumerate(expected):
            mean = sum(n * loss for n, (_, loss) in zip(sizes, each, strict=True)) / sum(sizes)
            assert seen[number][:2] == (number, pytest.approx(mean, abs=EXACT))
            assert gap(seen[number][2], state) < EXACT
            for rank in range(1, ranks):
                own = range(rank - 1, 4, ranks - 1)
                there, total = results[rank][name, what][1], sum(sizes[k] for k in own)
                mean = sum(sizes[k] * each[k][1] for k in own) / total
                assert there[number][:2] == (number, pytest.approx(mean, abs=EXACT))
                assert gap(there[number][2], each[own[-1]][0].state_dict()) < EXACT


def asked_of_a_few(comm, clients):
    """Half of the clients, of which the server sees the sum alone; and a rank without clients."""
    seen = []
    how = {"rounds": ROUNDS, "fraction": 0.5, "callback": partial(note, seen)}
    train(comm, model(), clients, secure=Secure(2, 200.0), **how)
    unasked = len(seen)
    train(comm, model(), clients[: comm.size - 2], **how)
    return [loss for _, loss, _ in seen[:unasked]], [loss for _, loss, _ in seen[unasked:]]


def test_a_loss_that_a_rank_does_not_have_is_nan_in_its_callback():
    server, *others = dlviz.launch(asked_of_a_few, 5, args=(dealt(4),)).results
    assert all(map(math.isnan, server[0])) and not any(map(math.isnan, server[1]))
    known = [[not math.isnan(loss) for loss in losses] for losses, _ in others]
    assert [sum(column) for column in zip(*known, strict=True)] == [2, 2, 2]
    assert all(map(math.isnan, others[-1][1]))


def negative(optimizer):
    return LambdaLR(optimizer, lambda number: 1 - number)


REFUSED = [
    ({"clips": 1.0}, TypeError, "unexpected keyword argument 'clips': it has clip, lr_sched"),
    ({"sharded": True}, TypeError, "unexpected keyword argument 'sharded'"),
    ({"clip": 0.0}, ValueError, "clip=0.0 leaves no gradient"),
    ({"callback": "x"}, ValueError, "callback='x' is no function"),
    ({"evaluate": 1.0}, ValueError, "evaluate=1.0 is no function"),
    ({"evaluate_every": 0}, ValueError, "evaluate_every=0 has to be a whole number, 1 or more"),
    ({"lr": 0.2, "lr_schedule": rates}, ValueError, "lr=0.2 has no effect beside lr_schedule="),
    ({"lr_schedule": 0.1}, ValueError, "lr_schedule=0.1 is no function: it needs a function of the "
                                       "round's number"),
    ({"lr_schedule": negative}, ValueError, "lr_schedule=-0.1 on round 2 is no rate"),
    ({"lr_schedule": lambda number: 1 - number}, ValueError, "lr_schedule=-1 on round 2 is no"),
    ({"loss": "mse"}, ValueError, r"loss='mse' is no function of \(outputs, labels\)"),
    ({"weight": "rows"}, ValueError, r"weight='rows' is no function of \(inputs, labels\)"),
    ({"weight": 0}, ValueError, "weight=0 is no function"),
]  # fmt: skip


def refusals(comm, clients):
    for options, kind, message in REFUSED:
        with pytest.raises(kind, match=message):
            train(comm, model(), clients, **{"rounds": 3} | options)
    return comm.rank


def test_what_cannot_train_is_refused_on_every_rank_before_the_first_round():
    run = dlviz.launch(refusals, 3, args=(dealt(2),), timeout=60)
    assert run.results == [0, 1, 2] and not len(run.trace.messages)


def test_of_models_that_train_together_each_is_clipped_by_its_own_norm_and_a_small_one_not_at_all():
    rows = torch.tensor([[0.3, 0.4], [3.0, 4.0], [0.0, 0.0]])  # a model each: norms 0.5, 5, 0
    first, none, second = clipped_each([rows, None, rows[:, None] * 2], clip=2.0)
    assert none is None and first is not None and second is not None
    for own, x, y in zip(rows, first, second, strict=True):
        parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1, 2))]
        parameters[0].grad, parameters[1].grad = own.clone(), own[None] * 2
        nn.utils.clip_grad_norm_(parameters, 2.0)
        torch.testing.assert_close((x, y), tuple(p.grad for p in parameters))

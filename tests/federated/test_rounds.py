"""Rounds of federated averaging against one process of plain torch."""

from itertools import pairwise, product

import federated_oracle as oracle
import pytest
import torch
from federated_oracle import THETA, averaged, dealt, gap, model

import dlviz
from dlviz.federated import train
from dlviz.federated.aggregation import ServerUpdate, weighted_mean
from dlviz.federated.local import LocalTraining, alone
from dlviz.federated.messages import ANSWER, PHASES, UPDATE, WEIGHTS, Answer
from dlviz.federated.stacked import can_stack, together
from dlviz.federated.weights import Layout
from dlviz.machine import Link, classroom
from dlviz.models import MLP, ConvNet
from dlviz.parallel import update_rules

EXACT = 1e-12


def each(comm, cases):
    """The results of several trainings, one after the other."""
    return [train(comm, model(), clients, **options) for clients, options in cases]


def trained(cases, ranks, **how):
    run = dlviz.launch(each, ranks, args=(cases,), **how)
    run.trace.validate()
    return run.results[0]


def orders(options, number, client, examples):
    how = {"epochs": 1, "batch": None, "seed": 0} | options
    how = LocalTraining(how["epochs"], how["batch"], 0.1, torch.nn.functional.cross_entropy, 0, 0)
    return [
        how.order(number, client, epoch, examples).split(how.batch or examples)
        for epoch in range(how.epochs)
    ]


def replayed(clients, options, answered, move=None):
    """The state after rounds in which these clients answered."""
    net = model()
    lr, mu = options.get("lr", 0.1), options.get("proximal", 0.0)
    for number, who in enumerate(answered):
        sizes = [len(clients[k][1]) for k in who]
        ends = [
            oracle.local(net, clients[k], lr, orders(options, number, k, size), mu)
            for k, size in zip(who, sizes, strict=True)
        ]
        update = averaged(net, ends, sizes)
        with torch.no_grad():
            if move is None:
                for p, change in zip(net.parameters(), update, strict=True):
                    p += change
            else:
                move(list(net.parameters()), update)
    return net.state_dict()


# -- what it comes to ----------------------------------------------------------------------------
def test_one_client_and_one_epoch_is_sgd():
    (data,) = clients = dealt(1)
    options = {"rounds": 3, "batch": 16}
    found = trained([(clients, options)], 2)[0]["state"]
    net = model()
    for number in range(3):
        for rows in orders(options, number, 0, len(data[1]))[0]:
            oracle.sgd(net, [(data[0][rows], data[1][rows])], 1, 0.1)
    assert gap(found, net.state_dict()) < EXACT


def test_fedsgd_is_full_batch_sgd_for_every_partition_and_1_to_8_clients():
    """On two ranks: from three clients on some share a process."""
    partitions = {"identical": {}, "by_label": {}, "dirichlet": {"alpha": 0.5}, "unequal": {}}
    cases = [
        (dealt(count, name, **how), {"rounds": 3, "lr": 0.5})
        for name, how in partitions.items()
        for count in range(1, 9)
    ]
    for (clients, _), found in zip(cases, trained(cases, 3), strict=True):
        assert gap(found["state"], oracle.sgd(model(), clients, 3, 0.5)) < EXACT


def test_fedprox_and_fedavgm_without_their_terms_are_fedavg_and_with_them_what_they_say():
    clients, options = dealt(4), {"rounds": 3, "epochs": 2, "batch": 8}
    added = [
        {},
        {"proximal": 0.0},
        {"server_momentum": 0.0, "server_lr": 1.0},
        {"proximal": 0.7},
        {"server_momentum": 0.9, "server_lr": 0.5},
        {"server_rule": update_rules.make("adam", 0.01)},
    ]
    found = [each["state"] for each in trained([(clients, options | a) for a in added], 3)]
    everybody = [[0, 1, 2, 3]] * 3
    velocity = [0.0] * 4

    def momentum(weights, update):
        for place, (p, change) in enumerate(zip(weights, update, strict=True)):
            velocity[place] = 0.9 * velocity[place] + change
            p += 0.5 * velocity[place]

    adam = []

    def adaptive(weights, update):
        if not adam:
            adam.append(torch.optim.Adam(weights, 0.01))
        for p, change in zip(weights, update, strict=True):
            p.grad = -change
        adam[0].step()

    plain = replayed(clients, options, everybody)
    assert [gap(each, plain) for each in found[:3]] == pytest.approx([0, 0, 0], abs=EXACT)
    assert gap(found[3], replayed(clients, options | added[3], everybody)) < EXACT
    assert gap(found[4], replayed(clients, options, everybody, momentum)) < EXACT
    assert gap(found[5], replayed(clients, options, everybody, adaptive)) < EXACT
    assert min(gap(each, plain) for each in found[3:]) > 1e-4


def answers(trace):
    """Of each round the clients whose updates came, from the messages; a client a rank."""
    table = trace.messages
    return [
        sorted(int(src) - 1 for src in table.src[(table.tag == UPDATE) & (table.step == number)])
        for number in sorted(set(table.step[table.tag == UPDATE].tolist()))
    ]


@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine
def test_rounds_are_replayed_to_the_last_bit_from_seed_partition_and_who_answered():
    """Whatever the order of arrival: in the second run client 0 comes last."""
    clients = dealt(4, "by_label")
    options = {"rounds": 4, "epochs": 2, "batch": 8, "fraction": 0.75}
    states = []
    for machine in (None, classroom(5, step=0.002, factors=[1, 3, 1, 1, 1])):
        run = dlviz.launch(train, 5, machine=machine, args=(model(), clients), kwargs=options)
        state, rounds = run.results[0]["state"], run.results[0]["rounds"]
        who = answers(run.trace)
        assert [record.answered for record in rounds] == who
        assert [record.selected for record in rounds] == who and {*map(len, who)} == {3}
        expected = replayed(clients, options, who)
        assert all(torch.equal(state[name], expected[name]) for name in expected)
        states.append(state)
    table = run.trace.messages
    asked = next(number for number, selected in enumerate(who) if 0 in selected)
    came = table[(table.tag == UPDATE) & (table.step == asked)]
    assert came.src[came.arrived.argmax()] == 1, "client 0 has come last"
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def squares(outputs, labels):
    """A loss that is not torch's own."""
    return (outputs.softmax(1) - torch.nn.functional.one_hot(labels, 10)).square().sum(1).mean()


BATCHES, BATCHED = [None, 1, 7, 40], ["by hand", "another loss", "another model"]


@pytest.fixture(scope="module")
def together_and_alone():
    """Of each batch and how it is batched: the largest gap, both losses, how far the weights moved
    and the clients' sizes."""

    def worker(comm):
        return {
            (batch, how_batched): compared(comm, batch, how_batched)
            for batch, how_batched in product(BATCHES, BATCHED)
        }

    def compared(comm, batch, how_batched):
        clients = [each for each in dealt(7, "dirichlet", alpha=0.5) if len(each[1])]
        net = ConvNet(dtype=torch.float64) if how_batched == "another model" else model()
        loss = squares if how_batched == "another loss" else torch.nn.functional.cross_entropy
        layout = Layout(net)
        values = len(layout.read())
        noise = torch.randn(len(clients), values, generator=torch.Generator().manual_seed(0))
        starts = layout.read() + 0.1 * noise.double()
        how = LocalTraining(2, batch, 0.3, loss, 0.2, seed=5)
        assert can_stack(layout, clients[0], how)
        numbers = list(range(len(clients)))
        rows, losses = together(comm, layout, starts, clients, how, 4, numbers)
        apart = [
            alone(comm, start, data, layout, how, 4, k)
            for k, start, data in zip(numbers, starts, clients, strict=True)
        ]
        gaps = [(row - one).abs().max().item() for row, (one, _) in zip(rows, apart, strict=True)]
        sizes = [len(labels) for _, labels in clients]
        return max(gaps), losses, [loss for _, loss in apart], (rows - starts).abs().max(), sizes

    return dlviz.launch(worker, 1).results[0]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("how_batched", BATCHED)
def test_clients_that_share_a_process_equal_clients_alone(together_and_alone, batch, how_batched):
    found, losses, expected, moved, sizes = together_and_alone[batch, how_batched]
    assert found < EXACT and losses == pytest.approx(expected, abs=EXACT) and moved > 0.01
    assert len(set(sizes)) > 3


class Jitter(torch.nn.Module):
    """Noise from a generator of its own, ever less of it: two states that a forward moves."""

    def __init__(self):
        super().__init__()
        self.draw, self.forwards = torch.Generator().manual_seed(3), 0

    def forward(self, x):
        self.forwards += 1
        return x + torch.randn(x.shape, generator=self.draw) / self.forwards


def noisy(update, client, number):
    return update + 0.01 * torch.randn(update.shape)


def test_clients_that_share_a_process_share_no_state():
    """What a forward leaves in a model, and what is drawn: clients of one process are what they
    are in processes of their own, to the last bit."""
    layers = {
        "dropout": lambda: torch.nn.Dropout(0.5),
        "statistics": lambda: torch.nn.BatchNorm1d(8),
        "counted statistics": lambda: torch.nn.BatchNorm1d(8, momentum=None),
        "own generator": Jitter,
        "noise on updates": torch.nn.Identity,
    }

    def worker(comm):
        torch.manual_seed(comm.rank)
        found = {}
        for name, layer in layers.items():
            torch.manual_seed(7)
            net = torch.nn.Sequential(
                torch.nn.Flatten(), torch.nn.Linear(64, 8), layer(), torch.nn.Linear(8, 10)
            )
            options = {"rounds": 2, "batch": 15, "epochs": 2}
            if name == "noise on updates":
                options |= {"outgoing": noisy, "loss": drawing}
            found[name] = train(comm, net, dealt(3, dtype=torch.float32), **options)["state"]
        return found

    one, three = (dlviz.launch(worker, ranks).results[0] for ranks in (2, 4))
    for name, apart in one.items():
        assert all(torch.equal(apart[key], three[name][key]) for key in apart), name
    assert one["statistics"]["2.running_mean"].abs().max() > 0.01


def drawing(outputs, labels):
    """A loss that cannot be stacked."""
    return torch.nn.functional.cross_entropy(outputs + torch.randn(outputs.shape), labels)


def test_the_counter_of_a_client_s_batch_norm_goes_on_from_round_to_round():
    """As plain torch's does: with momentum=None a running mean is divided by it."""
    (data,) = dealt(1)

    def net():
        torch.manual_seed(7)
        norm = torch.nn.BatchNorm1d(8, momentum=None)
        layers = torch.nn.Flatten(), torch.nn.Linear(64, 8), norm, torch.nn.Linear(8, 10)
        return torch.nn.Sequential(*layers).double()

    found = dlviz.launch(lambda comm: train(comm, net(), [data], rounds=3, lr=0.1), 2).results[0]
    expected = oracle.sgd(net(), [data], 3, 0.1)
    del found["state"]["2.num_batches_tracked"], expected["2.num_batches_tracked"]
    assert gap(found["state"], expected) < EXACT


def test_weights_are_weighted_by_examples_and_the_loss_as_well():
    losses, sizes = torch.tensor([2.0, 1.0, 2.0]), torch.tensor([1.0, 2.0, 1.0])
    assert weighted_mean(losses, sizes).item() == 1.5
    rows = torch.tensor([[1.0, 0.0], [0.0, 4.0]])
    assert weighted_mean(rows, torch.tensor([3.0, 1.0])).tolist() == [0.75, 1.0]
    assert weighted_mean(rows[:0], torch.zeros(0)).tolist() == [0.0, 0.0]


def test_the_order_of_examples_is_another_in_each_round_epoch_and_client():
    def order(*place, seed=0, batch=8):
        how = LocalTraining(1, batch, 0.1, torch.nn.functional.cross_entropy, 0.0, seed)
        return how.order(*place, 40).tolist()

    orders = [
        order(0, 0, 0),
        order(1, 0, 0),
        order(0, 1, 0),
        order(0, 0, 1),
        order(0, 0, 0, seed=1),
    ]
    assert all(sorted(each) == list(range(40)) for each in orders)
    assert len(set(map(tuple, orders))) == 5 and order(0, 0, 0) == orders[0]
    assert order(3, 2, 1, batch=None) == order(0, 0, 0, batch=40) == list(range(40))


# -- what it costs -------------------------------------------------------------------------------
def test_every_phase_of_every_client_and_every_message_is_in_the_trace_and_counted():
    clients, options = dealt(4, dtype=torch.float32), {"rounds": 3, "batch": 16}

    def worker(comm):
        return [
            train(comm, model(torch.float32), clients, **options, fp16=fp16)
            for fp16 in (False, True)
        ]

    run = dlviz.launch(worker, 5)
    run.trace.validate()
    whole, half = (result["rounds"] for result in run.results[0])
    assert [record.nbytes for record in whole] == [2 * 4 * THETA * 4] * 3
    assert [record.nbytes for record in half] == [4 * THETA * (4 + 2)] * 3
    table, spans = run.trace.messages, run.trace.spans
    for tag, sizes in ((WEIGHTS, {4 * THETA: 24}), (UPDATE, {4 * THETA: 12, 2 * THETA: 12})):
        found = table.nbytes[table.tag == tag].tolist()
        assert {size: found.count(size) for size in set(found)} == sizes
    others = table.nbytes[(table.tag != WEIGHTS) & (table.tag != UPDATE)]
    assert others.max() <= 40, "besides some words"
    for rank in range(5):
        for number in range(3):
            of = (spans.rank == rank) & (spans.step == number) & (spans.kind == "phase")
            assert sorted(spans.name[of].tolist()) == sorted(2 * PHASES)
    steps = {
        kind: int(((spans.kind == kind) & (spans.rank > 0)).sum())
        for kind in ("forward", "backward", "update")
    }
    batches = 2 * 3 * sum(-(-len(labels) // 16) for _, labels in clients)
    assert steps == dict.fromkeys(steps, batches)


def test_a_client_s_last_phase_but_one_ends_when_the_server_has_taken_its_update():
    """By the device's clock: the server takes one after the other, and a client waits for that."""
    machine = classroom(4, step=0.002, link=Link(0.005, 1e6))
    run = dlviz.launch(train, 4, machine, args=(model(), dealt(3)), kwargs={"rounds": 2})
    spans = run.trace.only(kind="phase").spans
    back = spans[spans.name == "4 updates back"]
    for number in range(2):
        of = back[back.step == number]
        taken, *ends = (of[of.rank == rank].end.max() for rank in range(4))
        assert max(ends) == pytest.approx(taken, abs=1e-9)
        gaps = [late - early for early, late in pairwise(sorted(ends))]
        assert all(gap >= 0.005 for gap in gaps), "one link takes them all in"


def test_fp16_updates_are_the_updates_to_three_digits():
    clients, options = dealt(3, dtype=torch.float64), {"rounds": 2, "epochs": 2, "batch": 8}
    one, other = trained([(clients, options), (clients, options | {"fp16": True})], 2)
    assert 0 < gap(one["state"], other["state"]) < 2e-3


def test_clients_that_always_train_are_counted_and_change_nothing():
    clients = dealt(4)
    options = {"rounds": 4, "fraction": 0.5, "epochs": 2, "batch": 16}
    run = dlviz.launch(each, 5, args=([(clients, options), (clients, options | {"always": True})],))
    plain, always = run.results[0]
    assert all(torch.equal(plain["state"][n], always["state"][n]) for n in plain["state"])
    sizes = [len(labels) for _, labels in clients]
    for one, other in zip(plain["rounds"], always["rounds"], strict=True):
        used = 2 * sum(sizes[k] for k in one.answered)
        assert (one.computed, one.unused) == (used, 0)
        assert (other.computed, other.unused) == (2 * sum(sizes), 2 * sum(sizes) - used)
    names = run.trace.only(rank=range(1, 5), kind="phase").spans.name.tolist()
    assert names.count("3 not asked") == 4 * 2, "drawn as what it is"


@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")
def test_the_first_to_answer_are_taken_where_more_are_asked_and_the_rest_is_dropped():
    clients, options = dealt(4), {"rounds": 3, "fraction": 0.5, "spare": 2}
    machine = classroom(5, step=0.002, factors=[1, 1, 1, 2, 3])
    cases = [(clients, options | {"late_weight": weight}) for weight in (0.0, 0.5)]
    dropping, taking = (result["rounds"] for result in trained(cases, 5, machine=machine))
    for records in (dropping, taking):
        assert [record.selected for record in records] == [[0, 1, 2, 3]] * 3
        assert [record.answered for record in records] == [[0, 1]] * 3
        assert [record.late for record in records] == [[2, 3]] * 3
    assert sum(len(record.dropped) for record in dropping) >= 2
    assert not any(record.taken for record in dropping) and any(record.taken for record in taking)
    assert dropping[0].unused == sum(len(clients[k][1]) for k in (2, 3))
    assert all(record.computed >= record.unused >= 0 for record in dropping)


# -- faults --------------------------------------------------------------------------------------
def bad(update, client, number):
    """What client 1 sends in rounds 0 to 3, and client 0 in round 4."""
    if (client, number) == (1, 0):
        return update.index_fill(0, torch.tensor([5]), float("nan"))
    if (client, number) == (1, 1):
        return update / 0
    if (client, number) == (1, 2):
        return update[:-1]
    if (client, number) == (1, 3):
        return update.float()
    return update


def test_what_is_no_update_is_named_and_training_goes_on_from_the_last_good_weights():
    clients = dealt(3)
    clients.append((clients[0][0][:0], clients[0][1][:0]))
    options = {"rounds": 5, "batch": 16}
    found = trained([(clients, options | {"outgoing": bad})], 5)[0]
    records = found["rounds"]
    assert [record.answered for record in records] == [[0, 2]] * 4 + [[0, 1, 2]]
    said = [record.rejected for record in records]
    assert [each[3] for each in said] == ["has no data"] * 5
    assert said[0][1] == said[1][1] == "sent NaN or Inf"
    assert said[2][1].startswith(f"sent ({THETA - 1},) of torch.float64, an update has ({THETA},)")
    assert "of torch.float32" in said[3][1] and 1 not in said[4]
    expected = replayed(clients, options, [[0, 2]] * 4 + [[0, 1, 2]])
    assert gap(found["state"], expected) == 0
    sizes = [len(labels) for _, labels in clients]
    assert [record.unused for record in records] == [sizes[1]] * 4 + [0]


def test_an_update_that_nobody_asked_for_is_named_and_thrown_away():
    """Rank 2 sends its own once more (in round 1), that of round 0 (in 3), client 0's (in 5)."""
    more = {1: (1, 1), 3: (0, 1), 5: (5, 0)}  # round and client of the word

    def worker(comm):
        send = comm.send

        def send_more(tensor, dst, tag=0):
            send(tensor, dst, tag)
            number = int(tensor[0])
            if comm.rank == 2 and tag == ANSWER and number in more:
                comm.isend(torch.full((THETA,), 9.0, dtype=torch.float64), dst, UPDATE)
                send(Answer(*more[number], 30, 30, 1.0).packed(), dst, ANSWER)

        comm.send = send_more
        return train(comm, model(), dealt(2), rounds=7, batch=16)

    found = dlviz.launch(worker, 3).results[0]
    said = [each for record in found["rounds"] for each in record.rejected.items()]
    why = "rank 2 sent an update of it that nobody asked for"
    assert said == [(1, why), (1, why), (0, why)]
    assert [record.answered for record in found["rounds"]] == [[0, 1]] * 7
    assert gap(found["state"], replayed(dealt(2), {"batch": 16}, [[0, 1]] * 7)) == 0


def test_a_round_in_which_nobody_answers_or_nothing_can_be_combined_says_so():
    clients, options = dealt(2), {"rounds": 2, "batch": 16}

    def refuse(updates, weights):
        raise ValueError(f"{len(updates)} updates tolerate no attacker")

    def combined(updates, weights):
        return torch.full_like(updates[0], 1e308) * 10

    def nobody(updates, weights):
        return updates.sum(0) + 1

    cases = [
        (clients, options | {"available": [0.0, 0.0]}),
        (clients, options | {"combine": refuse}),
        (clients, options | {"combine": combined}),
        (clients, options | {"selection": "poisson", "fraction": 1e-9, "combine": nobody}),
    ]
    found = trained(cases, 3)
    said = [[record.unchanged for record in result["rounds"]] for result in found]
    assert said[0] == ["no client was there to be selected"] * 2
    assert said[1] == ["2 updates tolerate no attacker"] * 2
    assert (
        said[2]
        == [
            f"combine made ({THETA},) of the updates, not all of it finite numbers: "
            f"the weights need ({THETA},)."
        ]
        * 2
    )
    for result in found[:3]:
        assert gap(result["state"], model().state_dict()) == 0
    assert found[1]["rounds"][0].unused == sum(len(labels) for _, labels in clients)
    assert said[3] == ["", ""], "under Poisson the noise is added to nobody's updates as well"
    assert gap(found[3]["state"], {n: p + 2 for n, p in model().state_dict().items()}) == 0


CROSS, MEAN = torch.nn.functional.cross_entropy, weighted_mean


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LocalTraining(0, None, 0.1, CROSS, 0, 0), "epochs=0 trains nothing"),
        (lambda: LocalTraining(1, 0, 0.1, CROSS, 0, 0), "batch=0 holds no example"),
        (lambda: LocalTraining(1, 2.5, 0.1, CROSS, 0, 0), "batch=2.5 holds"),
        (lambda: LocalTraining(1, None, float("nan"), CROSS, 0, 0), "lr=nan has to be"),
        (lambda: LocalTraining(1, None, 0.1, CROSS, -1.0, 0), "proximal=-1.0 has to be"),
        (
            lambda: ServerUpdate(weighted_mean, 1.0, 1.0, None, 1),
            "server_momentum=1.0 grows for ever",
        ),
        (lambda: ServerUpdate(weighted_mean, 0.0, -1.0, None, 1), "server_lr=-1.0 is not a rate"),
        (
            lambda: ServerUpdate(weighted_mean, 0.9, 1.0, update_rules.make("adam", 1), 1),
            "with a server_rule",
        ),
        (lambda: Layout(torch.nn.ReLU()), "no parameter to train"),
        (
            lambda: Layout(torch.nn.Sequential(MLP((2, 2)), MLP((2, 2), dtype=torch.float64))),
            "weights of torch.float32 and torch.float64",
        ),
    ],
)
def test_numbers_that_train_nothing_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_server_without_clients_or_rounds_is_refused():
    def refused(comm):
        found = []
        uneven = [(torch.ones(2, 64), torch.ones(1))]
        for clients, rounds, there in (
            ([], 1, None), (dealt(1), 0, None), (uneven, 1, None), (dealt(2), 1, [0.5]),
        ):  # fmt: skip
            with pytest.raises(ValueError) as caught:
                train(comm, model(), clients, rounds=rounds, available=there)
            found.append(str(caught.value))
        return found

    said = dlviz.launch(refused, 2).results
    assert said[0] == said[1]
    assert said[0][0].startswith("clients=[]") and said[0][1].startswith("rounds=0")
    assert said[0][2].startswith("client 0 has 2 inputs and 1 labels")
    assert said[0][3].startswith("available= has 1 probabilities for 2 clients")
    with pytest.raises(dlviz.RankError, match="federated on 1 rank has a server and no client"):
        dlviz.launch(train, 1, args=(model(), dealt(1)), kwargs={"rounds": 1})
    unpriced = classroom(2, step=None)
    with pytest.raises(dlviz.RankError, match="step=None .* give the machine a step, the seconds"):
        dlviz.launch(train, 2, args=(model(), dealt(1)), kwargs={"rounds": 1}, machine=unpriced)

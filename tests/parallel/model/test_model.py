"""The parts of one network on several ranks, in sequence and side by side, against one process of
plain torch; what is sent, what a rank holds, how long it takes."""

import copy
import gc
import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import dlviz
from dlviz import metrics, models
from dlviz.analysis.messages import collective_bytes
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.parallel import model as parts
from dlviz.parallel import update_rules
from dlviz.parallel.model import SideBySide
from dlviz.parallel.model.layer_split import parts_of
from dlviz.parallel.model.part_messages import SENT

RANKS = (1, 2, 3, 4)
WIDTH, ROWS, STEPS, LR = 6, 5, 4, 0.05
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, LR),
    "momentum": lambda p: torch.optim.SGD(p, LR, momentum=0.9),
    "nesterov": lambda p: torch.optim.SGD(p, LR, momentum=0.9, nesterov=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, LR),
    "rmsprop": lambda p: torch.optim.RMSprop(p, LR),
    "adam": lambda p: torch.optim.Adam(p, LR),
}


class Gate(nn.Module):
    """A module with a parameter, a buffer that it changes, and one that it never uses."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.scale = nn.Parameter(torch.full((WIDTH,), 0.5, dtype=torch.float64))
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(WIDTH, dtype=torch.float64))

    def forward(self, x):
        self.seen += x.detach().sum(0)
        return torch.sigmoid(self.linear(x)) * self.scale + x


class Head(nn.Module):
    """Joins outputs of unequal weight, by weights of its own."""

    def __init__(self, branches):
        super().__init__()
        self.mix = nn.Linear(branches * WIDTH, WIDTH).double()

    def forward(self, outputs):
        outputs[0].mul_(2)  # in place
        return self.mix(torch.cat(outputs, -1))


def linear():
    return nn.Linear(WIDTH, WIDTH).double()


def tower(*more):
    return nn.Sequential(linear(), nn.ReLU(inplace=True), *more, linear())


def mlp():
    return nn.Sequential(
        nn.Flatten(), linear(), nn.ReLU(inplace=True), linear(), nn.Tanh(), linear()
    )


def own():
    return nn.Sequential(Gate(linear()), linear(), nn.ReLU(inplace=True), Gate(linear()), linear())


def tied():
    """The first and the last layer share a weight and not the bias; a gate's unused parameter is
    shared as well; one layer is used twice."""
    first, gate, twice, other, last = linear(), Gate(linear()), linear(), Gate(linear()), linear()
    last.weight, other.unused = first.weight, gate.unused
    return nn.Sequential(first, gate, twice, nn.Tanh(), other, twice, last)


def side():
    return SideBySide([tower(), tower(Gate(linear())), tower(), linear()])


def side_tied():
    """Four branches, of which two are one module and two share a weight with the head."""
    first, second, third = tower(), tower(), tower()
    head = Head(4)
    third[0].weight = second[0].weight
    third[2].bias = head.mix.bias
    return SideBySide([first, second, first, third], head)


def lstm():
    return models.LSTM(7, width=4, window=6, dtype=torch.float64)


BUILDS = {build.__name__: build for build in (mlp, own, tied, side, side_tied, lstm)}


def data(name):
    generator = torch.Generator().manual_seed(3)
    if name == "lstm":
        tokens = torch.randint(1, 7, (STEPS, ROWS, 6), generator=generator)
        return [(each, each.flip(1)) for each in tokens]
    x = torch.randn(2, STEPS, ROWS, WIDTH, generator=generator, dtype=torch.float64)
    return list(zip(*x, strict=True))


def built(name):
    torch.manual_seed(5)
    return BUILDS[name](), models.token_loss if name == "lstm" else functional.mse_loss


def one_process(name, rule):
    """Losses, the last step's gradients by all names of their parameter, and the final state."""
    net, loss = built(name)
    optimizer, losses = OPTIMIZERS[rule](net.parameters()), []
    for x, y in data(name):
        optimizer.zero_grad()
        value = loss(net(x), y)
        value.backward()
        losses.append(value.item())
        optimizer.step()
    names: dict[nn.Parameter, list[str]] = {}
    for key, p in net.named_parameters(remove_duplicate=False):
        names.setdefault(p, []).append(key)
    gradients = {tuple(keys): p.grad for p, keys in names.items() if p.grad is not None}
    return losses, gradients, net.state_dict()


def cases(ranks):
    """Each model with two rules or more, each rule with a model that has ties."""
    for name in BUILDS:
        if name != "lstm" or ranks < 4:  # it has three layers
            for rule in OPTIMIZERS if name.endswith("tied") else ("momentum", "adam"):
                yield name, rule


def train_all(comm):
    """By 1, 2, 3 and 4 of the ranks; None where this rank takes no part."""
    found = []
    for ranks in RANKS:
        some = comm.split(0 if comm.rank < ranks else None)
        found.append(some and train_cases(some))
    return found


def train_cases(comm):
    found = {}
    for name, rule in cases(comm.size):
        net, loss = built(name)
        made, lr = (update_rules.make(rule, lr=LR), None) if rule == "adam" else (rule, LR)
        result = parts.train(comm, net, data(name), made, loss=loss, lr=lr)
        gradients = {
            key: p.grad
            for key, p in net.named_parameters(remove_duplicate=False)
            if p.grad is not None
        }
        found[name, rule] = result, gradients
    return found


def together(results):
    """The ranks' results merged; the first rank that has a tensor counts."""
    whole = {}
    for each in reversed(results):
        whole |= each
    return whole


def test_parts_on_ranks_equal_one_process():
    run, alone = dlviz.launch(train_all, max(RANKS)), {}
    run.trace.validate()
    for number, ranks in enumerate(RANKS):
        ranks_found = [found[number] for found in run.results[:ranks]]
        for case in cases(ranks):
            if case not in alone:
                alone[case] = one_process(*case)
            compare(case, [found[case] for found in ranks_found], *alone[case])


def compare(case, found, losses, gradients, state):
    """Compare the ranks' results of a case with one process."""
    results = [result for result, _ in found]
    for each in results:
        assert each["losses"] == pytest.approx(losses, rel=1e-12), case
    mine = results[0]["state"]
    assert list(mine) == list(state) and not any(each["state"] for each in results[1:])
    for key, value in state.items():
        assert (mine[key] - value).abs().max() < 1e-10, (case, key)
    used = set()
    for keys, gradient in gradients.items():
        # The first rank that has the parameter added up what the others sent.
        its = [own[key] for _, own in found for key in keys if key in own]
        assert (its[0] - gradient).abs().max() < 1e-10, (case, keys)
        used |= {*keys}
    assert all(own.keys() <= used for _, own in found)


def test_every_byte_sent_is_that_of_an_activation_a_gradient_or_a_shared_parameter():
    border, weight, bias = ROWS * WIDTH * 8, WIDTH * WIDTH * 8, WIDTH * 8
    expected = {  # of a step: activations, as many bytes of gradients; gradients of parameters
        ("mlp", (2, 4)): (2 * border, 0),
        # `first` shares with `last`; `twice` is on one rank alone; no rank uses what gates share
        ("tied", (2, 6)): (2 * border, weight),
        ("tied", (3, 6)): (2 * border, weight + weight + bias),  # and `twice` is on two
        ("side", (1, 3)): (3 * border, 0),
        # `first` is on two ranks; so are a weight of two towers, and the bias of the head
        ("side_tied", (1, 2)): (3 * border, 2 * (weight + bias) + weight + bias),
    }

    def worker(comm):
        found = {}
        for name, cuts in expected:
            net, loss = built(name)
            found[name, cuts] = parts.train(comm, net, data(name), loss=loss, lr=LR, cuts=cuts)
        return found

    run, whole = dlviz.launch(worker, 3), dict.fromkeys(SENT, 0)
    for (name, cuts), (activations, gradients) in expected.items():
        values = gradients + 12 * (name == "tied")  # a copy of an unused parameter has no gradient
        sent = {
            "activations": STEPS * activations,
            "gradients": STEPS * activations,
            "parameter_gradients": STEPS * gradients,
            "parameters": (STEPS + 1) * values,  # at the start the copies are made equal
        }
        for what in SENT:
            whole[what] += sent[what]
            for found in run.results:
                assert found[name, cuts][f"bytes_of_{what}"] == sent[what], (name, cuts, what)
    table = run.trace.messages
    for tag, what in enumerate(SENT):
        assert table.nbytes[table.tag == tag].sum() == whole[what]
    by_collectives = collective_bytes(run.trace).sum()
    assert sum(whole.values()) + by_collectives == metrics.bytes_sent(run.trace).sum()


def test_a_part_starts_from_its_ranks_values_and_what_is_shared_from_the_first_ranks():
    def worker(comm):
        torch.manual_seed(comm.rank)
        net = tied()
        before = {key: value.clone() for key, value in net.state_dict().items()}
        options = {"loss": functional.mse_loss, "lr": 0.0, "cuts": [5]}
        return before, parts.train(comm, net, [], **options)["state"]

    (first, state), (second, _) = dlviz.launch(worker, 2).results
    assert not torch.equal(first["0.weight"], second["0.weight"])
    assert list(state) == list(first)
    for key, value in state.items():  # 2 and 5 are one layer, of both ranks
        assert torch.equal(value, (second if key == "6.bias" else first)[key]), key


def wide():
    """Eight layers of 128 KB each in float32, and no other bytes."""
    return nn.Sequential(*[nn.Linear(181, 181, bias=False) for _ in range(8)])


def alive():
    """The bytes of all floats that this process can reach, each storage once: a cluster's own
    tensors hold whole numbers."""
    gc.unfreeze()  # a rank has its arguments out of the collector's sight
    found = {}
    for each in gc.get_objects():
        if issubclass(type(each), torch.Tensor) and each.is_floating_point() and not each.is_meta:
            storage = each.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


class Counting(update_rules.SGD):
    """Counts the bytes of tensors when the rank updates."""

    seen: list[int] = []

    def step(self, parameters, gradients):
        self.seen.append(alive())
        super().step(parameters, gradients)


def test_a_rank_holds_its_share_of_the_weights_and_no_more():
    def worker(comm, net, batches):
        before = alive()
        parts.train(comm, net, batches, Counting(0.1), loss=functional.mse_loss)
        return before, max(Counting.seen), sum(p.nbytes for p in net.parameters() if not p.is_meta)

    net, x = wide(), torch.randn(4, 181)
    args, whole, batch = (net, [(x, x)] * 2), sum(p.nbytes for p in net.parameters()), x.nbytes
    run = dlviz.launch(worker, 4, args=args)
    weights = run.trace.memory[run.trace.memory.what == "weights"]
    assert weights.nbytes.tolist() == [whole / 4] * 4
    for before, most, after in run.results:
        assert before >= whole, "launch gave it all of the model"
        assert after == whole / 4
        # Beside what was there before the model: weights, gradients, some rows of the batch.
        assert 0 <= most - (before - whole) - 2 * whole / 4 <= 20 * batch < whole / 8
    options = {"loss": functional.mse_loss}
    alone = metrics.peak_memory(dlviz.launch(parts.train, 1, args=args, kwargs=options).trace)
    assert alone[0] == 2 * whole
    np.testing.assert_array_equal(metrics.peak_memory(run.trace), alone[0] / 4)


@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine makes it late
def test_in_sequence_two_ranks_take_as_long_as_one_and_side_by_side_half_as_long():
    # A layer's forward takes 13 ms, its backward 26, or 13 where the input needs no gradient.
    layer = 2 * 16 * 64 * 64 / 1e7
    # Messages take nothing and updates hardly anything.
    device = Device("test", flops=1e7, memory=1e9, memory_bandwidth=1e15)
    x = torch.randn(16, 64)
    chain = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
    branches = SideBySide([nn.Sequential(*chain[:2]), nn.Sequential(*chain[2:])])
    work, seconds = {chain: 11, branches: 10}, {}
    for net, ranks in itertools.product((chain, branches), (1, 2)):
        machine = Machine(device, Topology.switch(ranks, Link(0.0, float("inf"))), step=None)
        args, options = (net, [(x, x)] * 3), {"loss": functional.mse_loss}
        trace = dlviz.launch(parts.train, ranks, machine=machine, args=args, kwargs=options).trace
        # Ranks begin step 0 when their program reaches it, the later ones at device times.
        seconds[net, ranks] = metrics.seconds_per_step(trace.only(step=(1, 2)))
        done = metrics.busy(trace).sum()  # by all ranks together
        assert done == pytest.approx(3 * work[net] * layer, rel=1e-6)
    assert seconds[chain, 1] == pytest.approx(11 * layer, rel=1e-6)
    assert seconds[chain, 2] == pytest.approx(seconds[chain, 1], rel=1e-6)
    assert seconds[branches, 1] == pytest.approx(2 * seconds[branches, 2], rel=1e-6)


@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")
def test_branches_of_3_and_2_layers_are_through_after_3_layers_instead_of_5():
    layer, x = 2 * 16 * 64 * 64 / 1e7, torch.randn(16, 64)
    device = Device("test", flops=1e7, memory=1e9, memory_bandwidth=1e15)
    branches = [nn.Sequential(*[nn.Linear(64, 64) for _ in range(n)]) for n in (3, 2)]
    args, options = (SideBySide(branches), [(x, x)] * 2), {"loss": functional.mse_loss}
    for ranks, layers in ((1, 5), (2, 3)):
        machine = Machine(device, Topology.switch(ranks, Link(0.0, float("inf"))), step=None)
        trace = dlviz.launch(parts.train, ranks, machine=machine, args=args, kwargs=options).trace
        spans = trace.only(step=1, rank=0).spans
        first, back = (spans[spans.kind == kind].start.min() for kind in ("forward", "backward"))
        assert back - first == pytest.approx(layers * layer, rel=1e-6)


def test_three_parts_of_which_two_share_add_up_what_not_all_of_them_have():
    """What all three have in common is nothing; the sum is over the pair."""
    (first, second, third), (x, y) = (linear() for _ in range(3)), data("mlp")[0]
    third.weight = first.weight
    net = nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), third)

    def worker(comm):
        mine = copy.deepcopy(net)
        how = {"loss": functional.mse_loss, "lr": 0.0, "cuts": [2, 4]}
        return parts.train(comm, mine, [(x, y)], **how), mine[0].weight.grad

    (result, gradient), *_ = dlviz.launch(worker, 3).results
    functional.mse_loss(net(x), y).backward()
    assert (gradient - first.weight.grad).norm() < 1e-12 * gradient.norm()
    assert result.bytes_of_parameter_gradients == first.weight.nbytes


def test_cuts_are_as_given_or_where_bytes_are_nearly_equal():
    net = nn.Sequential(*[nn.Linear(n, 1, bias=False) for n in (4, 1, 1, 3, 3, 6)])
    for ranks, cuts, expected in ((3, None, [3, 2, 1]), (3, [1, 5], [1, 4, 1]), (1, None, [6])):
        found = parts_of(net, ranks, cuts)
        assert [len(part) for part in found] == expected
        assert [layer for part in found for layer in part] == [*net]


@pytest.mark.parametrize(
    ("ranks", "cuts", "says"),
    [
        (4, None, "Sequential with layers=3 cannot be cut over ranks=4: .* Use ranks=3 or fewer"),
        (2, [3], r"cut over ranks=2 by cuts=\[3\]: .* Give 1, ascending, from 1 to 2\."),
        (3, [2, 1], r"cuts=\[2, 1\]: .* Give 2, ascending"),
        (3, [1], r"cuts=\[1\]"),
        (2, [0], r"cuts=\[0\]"),
    ],
)
def test_cuts_that_give_a_rank_nothing_are_refused(ranks, cuts, says):
    with pytest.raises(ValueError, match=says):
        parts_of(nn.Sequential(nn.ReLU(), nn.ReLU(), nn.ReLU()), ranks, cuts)


def test_a_sum_of_fewer_branches_than_ranks_and_an_output_that_is_no_tensor_are_refused():
    x = [(torch.ones(2, 2), torch.ones(2, 2))]
    cases = (
        (SideBySide([nn.Linear(2, 2)]), "SideBySide with branches=1 cannot be cut over ranks=2"),
        (nn.Sequential(nn.GRU(2, 2), nn.ReLU()), "stage 0 gave a tuple"),
    )
    for net, says in cases:
        with pytest.raises(dlviz.RankError, match=says):
            dlviz.launch(parts.train, 2, args=(net, x), kwargs={"loss": functional.mse_loss})

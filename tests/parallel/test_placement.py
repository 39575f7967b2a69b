"""Placed operators on real ranks: against one process of plain torch, which messages are sent, how
long a paced run takes beside what `play` says, what is refused, and what a dead rank leaves."""

import copy
import os
import random
import re
import signal
import statistics
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

import dlviz
from dlviz import metrics, models, sim
from dlviz.cli import main
from dlviz.machine import Link, classroom
from dlviz.models import GraphNet, graph_of
from dlviz.parallel import placement
from dlviz.sim.placement import LAB, Devices
from dlviz.trace import Trace
from tests.timing import attempts

RANKS, PLACEMENTS, ROWS = (1, 2, 3, 4), 3, 4
LIMIT = 300  # s for a run whose rank 0 exports, which takes long beside other tests


class Residual(nn.Module):
    """A small CNN: two branches that each need a part of one value, and a residual path."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.left, self.right = (nn.Conv2d(2, 4, 3, padding=1) for _ in range(2))
        self.head = nn.Linear(144, 5)

    def forward(self, x):
        x = functional.relu_(self.norm(self.stem(x)))
        first, second = (x * 2).chunk(2, 1)
        return self.head((self.left(first).sin() + self.right(second).cos() * x).flatten(1))


def mlp():
    layers = [layer for _ in range(3) for layer in (nn.Linear(6, 6), nn.ReLU(inplace=True))]
    return nn.Sequential(*layers, nn.Linear(6, 5))


def transformer():
    return models.Transformer(layers=1, hidden=8, heads=2, vocabulary=12, sequence=6)


BUILDS = {"mlp": (mlp, (6,), "children"), "cnn": (Residual, (1, 6, 6), "operators"),
          "transformer": (transformer, (6,), "operators")}  # fmt: skip


def built(name):
    torch.manual_seed(2)
    return BUILDS[name][0]().double()


def batches(name, sizes=(ROWS,)):
    drawn = torch.Generator().manual_seed(3)
    for rows in sizes:
        shape = (rows, *BUILDS[name][1])
        if name == "transformer":
            tokens = torch.randint(12, shape, generator=drawn)
            yield tokens, tokens.flip(1)
        else:
            x = torch.randn(*shape, generator=drawn, dtype=torch.float64)
            yield x, torch.randint(5, (rows,), generator=drawn)


def loss_of(name):
    return models.token_loss if name == "transformer" else functional.cross_entropy


def one_process(name):
    net, (x, y) = built(name), next(batches(name))
    output = net(x)
    value = loss_of(name)(output, y)
    value.backward()
    return output.detach(), value.item(), {key: p.grad for key, p in net.named_parameters()}


def run_all(comm, cases):
    """Each case (name, graph, ranks, placement), on as many ranks, as a step of its number."""
    by_ranks = {n: comm.split(0 if comm.rank < n else None) for n in RANKS}
    found = []
    for number, (name, operators, ranks, where) in enumerate(cases):
        some, net, (x, y) = by_ranks[ranks], built(name), next(batches(name))
        if some is None:
            found.append(None)
            continue
        placed = placement.PlacedModel(some, net, operators, where, Devices(ranks))
        plain = placed.run(x)
        some.barrier()
        with comm.span("phase", step=number):
            value = placed.run(x, y, loss_of(name))
        gradients = {key: p.grad for key, p in net.named_parameters() if p.grad is not None}
        found.append((plain, value, gradients))
    return found


@pytest.fixture(scope="module")
def placed():
    """Random placements of every model on 1 to 4 ranks: the cases and their run."""
    draw, cases = random.Random(5), []
    for name, (_, _, by) in BUILDS.items():
        operators = graph_of(built(name), next(batches(name))[0], by=by)
        for ranks in RANKS:
            for _ in range(PLACEMENTS if ranks > 1 else 1):
                where = [draw.randrange(ranks) for _ in range(len(operators))]
                cases.append((name, operators, ranks, where))
    return cases, dlviz.launch(run_all, max(RANKS), args=(cases,), timeout=LIMIT)


def test_a_placed_run_equals_one_process(placed):
    cases, run = placed
    run.trace.validate()
    alone = {name: one_process(name) for name in BUILDS}
    for number, (name, operators, ranks, where) in enumerate(cases):
        output, value, gradients = alone[name]
        found = [each[number] for each in run.results[:ranks]]
        home = where[operators.owner[operators.output]]
        for rank, (plain, its, own) in enumerate(found):
            assert (plain is None) == (its is None) == (rank != home)
            for key in own:  # a rank has gradients of its groups' parameters alone
                assert where[operators.owners[key]] == rank, (name, where, key)
        torch.testing.assert_close(found[home][0], output, rtol=1e-12, atol=1e-14)
        assert found[home][1] == pytest.approx(value, rel=1e-12)
        whole = {key: each for _, _, own in found for key, each in own.items()}
        assert whole.keys() == gradients.keys()
        for key, gradient in gradients.items():
            assert (whole[key] - gradient).norm() <= 1e-12 * gradient.norm() + 1e-15, (where, key)


def test_messages_are_those_of_the_graph_and_no_others(placed):
    cases, run = placed
    for number, (name, operators, _, where) in enumerate(cases):
        crossing = {
            (parent, where[parent], where[child], child)
            for child, parents in enumerate(operators.parents)
            for parent in parents
            if where[parent] != where[child]
        }
        expected = Counter()
        for parent, src, dst in {each[:3] for each in crossing}:
            for value in operators.groups[parent].outputs:
                nbytes = torch.empty(*operators.forms[value][:1], dtype=operators.forms[value][1])
                expected[src, dst, parent, nbytes.nbytes] += 1
                if value in operators.graded and any(
                    operators.returned[child] & {*operators.groups[parent].outputs}
                    for one, _, to, child in crossing if (one, to) == (parent, dst)
                ):  # fmt: skip
                    expected[dst, src, parent + len(operators), nbytes.nbytes] += 1
        rows = run.trace.messages[run.trace.messages.step == number]
        sent = Counter((row.src, row.dst, row.tag, row.nbytes) for row in rows)
        assert sent == expected, (name, where)


def test_a_shared_parameter_goes_to_each_rank_that_uses_it_and_its_gradient_comes_back(placed):
    cases, run = placed
    net = built("transformer")
    operators = next(each for name, each, *_ in cases if name == "transformer")
    assert operators.groups[0].outputs == ("tokens.weight",)
    for number, (name, _, _, where) in enumerate(cases):
        if name == "transformer":
            users = {where[at] for at, own in enumerate(operators.parents) if 0 in own} - {where[0]}
            rows = run.trace.messages[run.trace.messages.step == number]
            for tag in (0, len(operators)):
                assert rows[rows.tag == tag].nbytes.sum() == len(users) * net.tokens.weight.nbytes


def trained(comm, name, sizes, rule, **options):
    net = built(name)
    how = {"loss": loss_of(name), "lr": 0.05} | options
    if name == "transformer":
        how["weight"] = models.target_tokens
    return placement.train(comm, net, list(batches(name, sizes)), rule, **how)


@pytest.mark.parametrize(
    ("name", "rule", "sizes", "options"),
    [
        ("cnn", "momentum", (4, 4, 4), {}),
        ("mlp", "sgd", (4, 4, 2), {"by": "children", "placement": "round_robin"}),
        ("transformer", "momentum", (4, 4), {"placement": "layers"}),
    ],
)
def test_training_equals_one_process(name, rule, sizes, options):
    net, losses = built(name), []
    momentum = 0.9 if rule == "momentum" else 0.0
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=momentum)
    for x, y in batches(name, sizes):
        optimizer.zero_grad()
        value = loss_of(name)(net(x), y)
        value.backward()
        losses.append(value.item())
        optimizer.step()
    run = dlviz.launch(trained, 3, args=(name, sizes, rule), kwargs=options, timeout=LIMIT)
    first, *others = run.results
    assert first.losses == pytest.approx(losses, rel=1e-12)
    assert [*first.state] == [*net.state_dict()] and not any(each.state for each in others)
    for key, value in net.state_dict().items():
        torch.testing.assert_close(first.state[key], value, rtol=1e-10, atol=1e-12, msg=key)
    assert len(first.placement) == first.groups and {*first.placement} <= {0, 1, 2}
    assert first.placement == others[0].placement and first.predicted_seconds > 0
    held = run.trace.memory[run.trace.memory.what == "weights"]
    assert held.nbytes.sum() == sum(each.nbytes for each in net.state_dict().values())


UNIT = 0.02  # s: what a second of the lab's graph takes here


@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine makes it late
def test_paced_runs_take_what_play_says_on_the_labs_graph():
    link = Link(UNIT / 2, float("inf"))
    seconds = [UNIT * own for own in LAB.seconds]
    graph, devices = sim.placement.Graph(seconds, LAB.parents, LAB.nbytes), Devices(4, link)
    net, batch = GraphNet(LAB.parents), torch.ones(2, 8)
    operators = replace(graph_of(net, batch, by="children"), forward=tuple(seconds))
    where = [sim.placement.search(graph, devices, "heft").placement, [at % 4 for at in range(10)],
             [0, 1] * 5]  # fmt: skip
    predicted = [sim.placement.seconds_of(graph, each, devices) for each in where]
    assert len({round(each / UNIT, 3) for each in predicted}) == len(where)
    for attempt in attempts():
        run = dlviz.launch(
            placement.measure, 4, machine=classroom(4, link=link),
            args=(net, operators, where, batch), kwargs={"repeats": 5}, timeout=LIMIT,
        )  # fmt: skip
        with attempt:
            found = [statistics.median(each) for each in run.results[0]]
            assert found == pytest.approx(predicted, rel=0.03)


@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")
def test_a_paced_step_takes_what_its_training_graph_says():
    graph = GraphNet(LAB.parents)
    given = [(torch.ones(2, 8), torch.zeros(2, 8))] * 3
    how = {"loss": functional.mse_loss, "lr": 0.1, "by": "children", "placement": "round_robin"}
    for attempt in attempts():
        machine = classroom(3, step=UNIT)
        run = dlviz.launch(
            placement.train, 3, machine=machine, args=(graph, given), kwargs=how, timeout=LIMIT
        )
        spans = run.trace.only(step=1).spans
        spans = spans[(spans.kind == "forward") | (spans.kind == "backward")]
        assert len(spans) == 2 * 10
        with attempt:
            took = spans.end.max() - spans.start.min()
            assert took == pytest.approx(run.results[0].predicted_seconds, rel=0.03)


def refused(comm, net, given, says, **options):
    with pytest.raises(ValueError, match=says):
        placement.train(comm, net, given, **options)


class Unexportable(nn.Linear):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


def test_what_cannot_be_placed_is_refused_on_every_rank():
    net, given = GraphNet([(), (0,)]), [(torch.ones(2, 8), torch.zeros(2, 8))]
    cases = [
        (net, "placement='best' is unknown: give the rank of each group, or one of one, layers",
         {"placement": "best"}),
        (net, r"placement\[1\]=2 is not a device: they are 0 to 1", {"placement": [0, 2]}),
        (net, "placement has 1 devices and the graph 2 groups", {"placement": [0]}),
        (net, r"device 0 hold 576 bytes and it has 300: 276 bytes are missing",
         {"placement": [0, 0], "device_bytes": 300}),
        (net, "by='layer' is not known", {"by": "layer"}),
        (Unexportable(8, 8), r"no graph of its operators: .*test_placement.py:\d+: return super",
         {"by": "operators"}),
    ]  # fmt: skip

    def worker(comm):
        for module, says, options in cases:
            how = {"loss": functional.mse_loss, "by": "children"} | options
            refused(comm, copy.deepcopy(module), given, says, **how)

    dlviz.launch(worker, 2, timeout=LIMIT)


def test_when_a_rank_dies_the_others_say_for_whom_and_for_which_value_they_wait():
    net, batch = GraphNet([(), (0,), (1,)]), torch.ones(2, 8)
    operators = graph_of(net, batch, by="children")

    def worker(comm):
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        placement.PlacedModel(comm, net, operators, [0, 1, 2], Devices(3)).run(batch)

    says = r"(?s)rank 1 was killed by SIGKILL.*rank 2 waits in recv from rank 1 \(.*tag 1, shape"
    with pytest.raises(dlviz.RankError, match=says):
        dlviz.launch(worker, 3, timeout=LIMIT)


def test_the_command_shows_placement_traffic_and_memory(tmp_path, capsys):
    out = tmp_path / "placed.json.gz"
    line = ["run", "placement", "--ranks", "2", "--steps", "2", "--out", str(out)]
    assert main([*line, "--placement", "layers"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^placement +\[0, .*1\]$", said, re.M) and "predicted seconds" in said
    trace = Trace.load(out)
    assert (metrics.peak_memory(trace) > 0).all() and len(trace.messages) > 0
    assert {"forward", "backward", "update"} <= {*trace.spans.kind}

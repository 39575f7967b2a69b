"""Local SGD, gossip, elastic averaging and ensembles against one process of plain torch."""

import copy
import math

import pytest
import torch
from torch import nn

import dlviz
from dlviz import metrics
from dlviz.machine import classroom
from dlviz.parallel import STRATEGIES
from dlviz.parallel.averaging import easgd, ensemble, gossip
from dlviz.parallel.averaging.easgd import stability

LR = 0.1
pytestmark = pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine


class Net(nn.Module):
    """Parameters of two dtypes, so that a model is two messages."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Linear(5, 8).double(), nn.Linear(8, 3)

    def forward(self, x):
        return self.outer(self.inner(x).tanh().float())


def batches(count, rows=13):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, rows, 5, generator=generator).double()
    labels = torch.randint(0, 3, (count, rows), generator=generator)
    return list(zip(inputs, labels, strict=True))


def gradient(model, inputs, labels):
    loss = nn.functional.cross_entropy(model(inputs), labels)
    return torch.autograd.grad(loss, list(model.parameters()))


@torch.no_grad()
def descend(model, gradients):
    for p, g in zip(model.parameters(), gradients, strict=True):
        p -= LR * g


def shards(batch, n):
    return list(zip(*(part.tensor_split(n) for part in batch), strict=True))


def close(state, model, within=1e-6):
    return all(
        (state[name] - value).norm() <= within * value.norm()
        for name, value in model.state_dict().items()
    )


def same_bits(state, model):
    return all(torch.equal(state[name], value) for name, value in model.state_dict().items())


@torch.no_grad()
def mean_of(models, weights):
    mean = copy.deepcopy(models[0])
    for name, p in mean.named_parameters():
        parts = [w * dict(m.named_parameters())[name] for m, w in zip(models, weights, strict=True)]
        p.copy_(sum(parts) / sum(weights))
    return mean


def every_method(comm, cases):
    return {
        name: STRATEGIES[name.split()[0]](comm, Net(), data, rule, lr=LR, **options)
        for name, (data, rule, options) in cases.items()
    }


@pytest.fixture(scope="module")
def results():
    """The results of every method on 4 ranks."""
    cases = {
        "local_sgd 1": (batches(6), "sgd", {"every": 1}),
        "local_sgd 1 momentum": (batches(6), "momentum", {"every": 1}),
        "local_sgd 1 adam": (batches(6), "adam", {"every": 1}),
        "local_sgd 3": (batches(7), "sgd", {"every": 3, "all_reduce": "tree"}),
        "gossip ring": (batches(6), "sgd", {}),
        "gossip matching": (batches(6), "sgd", {"topology": "matching"}),
        "easgd round_robin": (batches(7), "sgd", {"alpha": 0.3}),
        "easgd synchronous": (batches(5), "sgd", {"alpha": 0.2, "form": "synchronous"}),
        "ensemble": (batches(7), "sgd", {}),
        "sync_server": (batches(6), "adam", {}),
    }
    run = dlviz.launch(every_method, 4, args=(cases,))
    run.trace.validate()
    return {name: [result[name] for result in run.results] for name in cases}


@pytest.mark.parametrize("rule", ["sgd", "momentum", "adam"])
def test_averaging_after_every_step_is_one_process_for_rules_linear_in_the_gradients(results, rule):
    model = Net()
    optimizer = {
        "sgd": lambda p: torch.optim.SGD(p, LR),
        "momentum": lambda p: torch.optim.SGD(p, LR, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, LR),
    }[rule](model.parameters())
    losses = []
    for inputs, labels in batches(6):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    found = results["local_sgd 1" + f" {rule}" * (rule != "sgd")]
    for result in found:
        assert close(result["state"], model) == (rule != "adam")
    if rule != "adam":
        assert found[0]["losses"] == pytest.approx(losses, rel=1e-6)


def test_local_sgd_averages_models_every_few_steps_and_after_the_last(results):
    replicas = [Net() for _ in range(4)]
    weights = [0] * 4
    for step, batch in enumerate(batches(7)):
        for rank, (inputs, labels) in enumerate(shards(batch, 4)):
            descend(replicas[rank], gradient(replicas[rank], inputs, labels))
            weights[rank] += len(inputs)
        if step in (2, 5, 6):
            replicas = [copy.deepcopy(mean_of(replicas, weights)) for _ in range(4)]
            weights = [0] * 4
    assert all(close(result["state"], replicas[0]) for result in results["local_sgd 3"])


@pytest.mark.parametrize("topology", ["ring", "matching"])
def test_gossip_is_a_step_and_an_average_of_neighbours_to_the_last_bit(results, topology):
    replicas = [Net() for _ in range(4)]
    for step, batch in enumerate(batches(6)):
        for rank, (inputs, labels) in enumerate(shards(batch, 4)):
            descend(replicas[rank], gradient(replicas[rank], inputs, labels))
        before, replicas = replicas, copy.deepcopy(replicas)
        for rank, model in enumerate(replicas):
            others = gossip.neighbours(rank, 4, topology, step)
            with torch.no_grad():
                for place, p in enumerate(model.parameters()):
                    for other in others:
                        p += list(before[other].parameters())[place]
                    p /= 1 + len(others)
    for result, model in zip(results[f"gossip {topology}"], replicas, strict=True):
        assert same_bits(result["state"], model)


def test_round_robin_is_the_two_equations_one_worker_after_the_other_to_the_last_bit(results):
    centre, workers, losses = Net(), [Net() for _ in range(3)], []
    for t, (inputs, labels) in enumerate(batches(7)):
        w = workers[t % 3]
        losses.append(nn.functional.cross_entropy(w(inputs), labels).item())
        gradients, old = gradient(w, inputs, labels), copy.deepcopy(w)
        eta, rho, alpha = LR, 0.3 / LR, 0.3
        with torch.no_grad():
            for p, g, c in zip(w.parameters(), gradients, centre.parameters(), strict=True):
                p -= eta * (g + rho * (p - c))  # equation 1
            for p, c in zip(old.parameters(), centre.parameters(), strict=True):
                c += alpha * (p - c)  # equation 2
    for result in results["easgd round_robin"]:
        assert same_bits(result["state"], centre)
        assert result["losses"] == losses


def test_algorithm_1_begins_with_normalised_inputs_and_weights_drawn_by_xaviers_rule():
    given = [(5 + 3 * inputs, labels) for inputs, labels in batches(4)]
    prepared = easgd.normalised(given)
    inputs = torch.cat([each for each, _ in prepared])
    assert float(inputs.mean()) == pytest.approx(0, abs=1e-12)
    assert float(inputs.std(correction=0)) == pytest.approx(1)
    assert all(after is before for (_, after), (_, before) in zip(prepared, given, strict=True))
    model = nn.Linear(200, 100)
    assert easgd.xavier(model, seed=3) is model and not model.bias.any()
    drawn = model.weight.clone()
    assert 0.99 * (6 / 300) ** 0.5 < float(drawn.abs().max().detach()) <= (6 / 300) ** 0.5
    assert torch.equal(easgd.xavier(nn.Linear(200, 100), seed=3).weight, drawn)


def test_synchronous_elastic_averaging_sums_over_all_workers(results):
    centre, workers = Net(), [Net() for _ in range(3)]
    for batch in batches(5):
        found = [gradient(w, *part) for w, part in zip(workers, shards(batch, 3), strict=True)]
        old = copy.deepcopy(workers)
        with torch.no_grad():
            for place, c in enumerate(centre.parameters()):
                for w, g in zip(workers, found, strict=True):
                    p = list(w.parameters())[place]
                    p -= LR * g[place] + 0.2 * (p - c)
                c += 0.2 * sum(list(w.parameters())[place] - c for w in old)
    assert all(close(result["state"], centre) for result in results["easgd synchronous"])


def test_asynchronous_elastic_averaging_is_replayed_from_the_order_of_arrivals():
    machine = classroom(4, step=0.002, factors=[1, 1, 1, 3])
    options = {"lr": LR, "alpha": 0.3, "form": "asynchronous"}
    args = Net(), batches(10), "sgd"
    run = dlviz.launch(STRATEGIES["easgd"], 4, machine=machine, args=args, kwargs=options)

    def replayed(order):
        centre, workers = Net(), {rank: Net() for rank in (1, 2, 3)}
        mine = {rank: iter(batches(10)[rank - 1 :: 3]) for rank in (1, 2, 3)}
        for rank in order:
            w = workers[rank]
            gradients, old = gradient(w, *next(mine[rank])), copy.deepcopy(w)
            with torch.no_grad():
                for p, g, c in zip(w.parameters(), gradients, centre.parameters(), strict=True):
                    p -= LR * (g + 0.3 / LR * (p - c))
                for p, c in zip(old.parameters(), centre.parameters(), strict=True):
                    c += 0.3 * (p - c)
        return centre

    order = run.trace.only(rank=0, kind="recv").spans.peer.tolist()[::2]
    assert metrics.staleness(run.trace)["rank"].tolist() == order
    assert same_bits(run.results[0]["state"], replayed(order))
    assert not same_bits(run.results[0]["state"], replayed(order[::-1]))


def test_members_of_an_ensemble_train_separately_and_average_their_probabilities(results):
    members = [Net() for _ in range(4)]
    for rank, model in enumerate(members):
        for inputs, labels in batches(7)[rank::4]:
            descend(model, gradient(model, inputs, labels))
        assert same_bits(results["ensemble"][rank]["state"], model)
    inputs = batches(1)[0][0]
    states = [result["state"] for result in results["ensemble"]]
    with torch.no_grad():
        mean = torch.stack([m(inputs).softmax(1) for m in members]).mean(0)
    assert torch.allclose(ensemble.probabilities(Net(), states, inputs), mean, atol=1e-7)


def disagreements(comm, topology, rounds, again):
    """The squared distance of all models from their mean, round by round, and the mean; `again`
    begins each round with the first models."""
    generator = torch.Generator().manual_seed(comm.rank)
    first = model = torch.randn(50, generator=generator, dtype=torch.float64)
    found = []
    for number in range(rounds):
        everyone = model.new_empty(comm.size, 50)
        comm.all_gather(everyone, model)
        mean = everyone.mean(0)
        found.append(((everyone - mean).square().sum().item(), mean))
        model = first.clone() if again else model
        gossip.mix(comm, [model], topology, number)
    return found


def ring_then_matchings(comm):
    return disagreements(comm, "ring", 40, False), disagreements(comm, "matching", 60, True)


def test_gossip_preserves_the_mean_and_shrinks_the_disagreement_by_its_formula():
    assert gossip.contraction(8, "ring") == pytest.approx(0.804738, abs=5e-7)
    assert gossip.contraction(8, "matching") == 3 / 7
    assert [gossip.contraction(n, "ring") for n in (1, 2)] == pytest.approx([0, 1 / 3])
    ring, matchings = dlviz.launch(ring_then_matchings, 8).results[0]
    for _, mean in [*ring, *matchings]:
        assert torch.allclose(mean, ring[0][1], atol=1e-12)
    assert math.sqrt(ring[39][0] / ring[38][0]) == pytest.approx(0.804738, abs=1e-4)
    start, *after = [square for square, _ in matchings]
    assert sum(after) / len(after) / start == pytest.approx(3 / 7, rel=0.03)


@pytest.mark.parametrize("form", stability.FORMS)
def test_the_stable_range_of_alpha_is_that_of_the_closed_forms(form):
    for workers in range(1, 7):
        for eta in (0.1, 0.5, 1.5):
            one = (4 - 2 * eta) / (4 - eta)
            all_at_once = (4 - 2 * eta) / (2 + 2 * workers - workers * eta)
            bound = easgd.stable_alpha(workers, eta, form)
            if form == "synchronous":
                assert bound == pytest.approx(all_at_once)
            elif workers % 2:
                assert bound == pytest.approx(one)
            else:
                assert one < bound < 1.2 * one
            assert easgd.spectral_radius(workers, eta, bound, form) == pytest.approx(1, abs=1e-6)
            assert easgd.spectral_radius(workers, eta, 1.02 * bound, form) > 1.001
    assert easgd.stable_alpha(2, 0.5, "round_robin") == pytest.approx(0.8911, abs=5e-5)
    assert easgd.stable_alpha(3, 0.5, "round_robin") == pytest.approx(0.8571, abs=5e-5)
    assert easgd.stable_alpha(4, 0.5, "synchronous") == pytest.approx(0.375)
    assert easgd.stable_alpha(3, 2.0, form) < 1e-6


class Point(nn.Module):
    """A loss of curvature 1, whatever the data."""

    def __init__(self):
        super().__init__()
        self.x = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, inputs):
        return self.x * torch.ones(len(inputs), dtype=torch.float64)


def half_square(outputs, labels):
    return (outputs.square() / 2).mean()


def below_and_above(comm):
    data = [(torch.ones(6, 1), torch.zeros(6))] * 240
    found = {}
    for form in ("round_robin", "synchronous"):
        bound = easgd.stable_alpha(comm.size - 1, 0.5, form)
        for factor in (0.95, 1.05):
            options = {"loss": half_square, "lr": 0.5, "alpha": factor * bound, "form": form}
            model = STRATEGIES["easgd"](comm, Point(), data, "sgd", **options)
            found[form, factor] = abs(model["state"]["x"].item())
    return found


@pytest.mark.filterwarnings("default:alpha")  # ranks show it, as this process would
def test_elastic_averaging_settles_below_its_bound_and_diverges_above_with_a_warning():
    run = dlviz.launch(below_and_above, 3)
    for (form, factor), distance in run.results[0].items():
        assert distance < 0.5 if factor < 1 else distance > 2, (form, factor, distance)
    said = run.output[0]
    assert said.count("outside the stable range") == 2
    assert "round_robin" in said and "use less than 0.8911" in said
    assert "synchronous" in said and "use less than 0.6." in said
    assert not run.output[1]


def test_invalid_arguments_are_refused_before_training():
    def worker(comm):
        said = {}
        for name, options in [
            ("local_sgd", {"every": 0}),
            ("local_sgd", {"every": 1.5}),
            ("gossip", {"topology": "tree"}),
            ("gossip", {"topology": "matching"}),
            ("easgd", {"form": "serial"}),
            ("easgd", {"alpha": -0.1}),
            ("easgd", {"alpha": math.nan}),
        ]:
            with pytest.raises(ValueError) as error:
                STRATEGIES[name](comm, Net(), batches(2), "sgd", **options)
            said[str(options)] = str(error.value)
        with pytest.raises(ValueError, match="has a server and no worker"):
            STRATEGIES["easgd"](comm.split(comm.rank), Net(), batches(2), "sgd")
        return said

    for option, message in dlviz.launch(worker, 3).results[0].items():
        assert message.startswith(option[2:].split("'")[0] + "="), message
        if "every" in option:
            assert message.endswith("has to be a whole number, 1 or more."), message
        else:
            assert "use " in message

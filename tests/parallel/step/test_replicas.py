"""Ranks that hold different models are found before training, and both are named."""

import re

import pytest
import torch
from torch import nn

import dlviz
from dlviz import metrics
from dlviz.parallel import STRATEGIES
from dlviz.parallel.data import DDP
from dlviz.parallel.step.replicas import start_alike, watch_replica


def models(case, rank):
    """The model of `rank`: rank 2 has another."""
    other = rank == 2
    match case:
        case "width":
            return nn.Sequential(nn.Linear(4, 3 if other else 2))
        case "transposed":  # as many numbers, in another shape
            return nn.Sequential(nn.Linear(2, 3, bias=False) if other else nn.Linear(3, 2, False))
        case "depth":
            layers = [nn.Linear(2, 2), nn.Linear(2, 2)]
            return nn.Sequential(*layers[: 1 + other])
        case "dtype":
            return nn.Linear(2, 2).double() if other else nn.Linear(2, 2)
        case "frozen":
            return nn.Linear(2, 2).requires_grad_(not other)
        case "module":
            return nn.Sequential(nn.Linear(2, 2), nn.Tanh() if other else nn.ReLU())


SAYS = {
    "width": r"parameter 0.weight of float32\(2, 4\) where rank 2 has .* float32\(3, 4\)",
    "transposed": r"parameter 0.weight of float32\(2, 3\) where rank 2 has .* float32\(3, 2\)",
    "depth": "has parameter 0.weight of .* where rank 2 has Linear 1",
    "dtype": "weight of float32.* where rank 2 has parameter weight of float64",
    "frozen": "has parameter weight .* where rank 2 has frozen parameter weight",
    "module": "has ReLU 1 where rank 2 has Tanh 1",
}


def test_different_models_are_named_with_both_ranks():
    def worker(comm):
        said = {}
        for case in SAYS:
            with pytest.raises(ValueError) as error:
                DDP(models(case, comm.rank), comm)
            said[case] = str(error.value)
        return said

    for said in dlviz.launch(worker, 4).results:
        for case, pattern in SAYS.items():
            assert said[case].startswith("rank 0 and rank 2 hold different models: rank 0 has ")
            assert re.search(pattern, said[case]), said[case]


@pytest.fixture(scope="module")
def refusals():
    """The errors of each strategy on ranks with different models, one after the other."""

    def worker(comm):
        said = {}
        for name in STRATEGIES:
            batches = [(torch.ones(4, 2), torch.zeros(4, dtype=torch.int64))]
            model, options = nn.Linear(2, 3 if comm.rank else 2), {}
            if name == "3d":  # the model is its stages
                model, options = [model], {"dp": 2, "pp": 1, "tp": 1, "microbatches": 1}
            if name == "cnn_hybrid":  # its dense layers are among others
                model = nn.Sequential(model)
            with comm.span("phase", name):
                try:
                    STRATEGIES[name](comm, model, batches, "sgd", **options)
                except ValueError as error:
                    said[name] = str(error)
        return said

    return dlviz.launch(worker, 2)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_finds_them_before_its_first_step(refusals, name):
    for said in refusals.results:
        assert said[name].startswith("rank 0 and rank 1 hold different models")
    spans = refusals.trace.spans
    for rank in range(2):
        of = (spans.rank == rank) & (spans.name == name)
        ((start, end),) = zip(spans.start[of], spans.end[of], strict=True)
        inside = (spans.rank == rank) & (spans.start >= start) & (spans.end <= end)
        assert not (spans.step[inside] >= 0).any()


def test_all_start_from_rank_0s_values_in_every_dtype():
    def worker(comm):
        torch.manual_seed(comm.rank)
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1).double())
        model[1].num_batches_tracked += comm.rank
        start_alike(comm, model)
        return model.state_dict()

    first, *others = dlviz.launch(worker, 3).results
    for state in others:
        assert all(torch.equal(state[name], value) for name, value in first.items())


def test_recorded_replicas_show_how_far_apart_they_were():
    """Local SGD with H = 2 against one process of plain torch that takes the steps of both."""

    def worker(comm, name, **options):
        model = net()
        watch_replica(comm, model, weights=1000)
        STRATEGIES[name](comm, model, data, lr=0.1, **options)

    def net():
        torch.manual_seed(0)
        return nn.Linear(3, 2)

    data = [(torch.randn(4, 3), torch.randint(0, 2, (4,))) for _ in range(4)]
    found = metrics.disagreement(
        dlviz.launch(worker, 2, args=("local_sgd",), kwargs={"every": 2}).trace
    )
    both, expected = [net(), net()], []
    for step, (inputs, labels) in enumerate(data):
        flat = [nn.utils.parameters_to_vector(one.parameters()).detach() for one in both]
        mean = (flat[0] + flat[1]) / 2
        expected.append(float((flat[0] - mean).norm() / mean.norm()))
        for one, x, y in zip(both, inputs.chunk(2), labels.chunk(2), strict=True):
            gradients = torch.autograd.grad(
                nn.functional.cross_entropy(one(x), y), list(one.parameters())
            )
            with torch.no_grad():
                for p, g in zip(one.parameters(), gradients, strict=True):
                    p -= 0.1 * g
        if step % 2:
            flat = [nn.utils.parameters_to_vector(one.parameters()).detach() for one in both]
            for one in both:
                nn.utils.vector_to_parameters((flat[0] + flat[1]) / 2, one.parameters())
    assert expected[1] > 1e-3 and expected[2] == 0
    assert found.disagreement.tolist() == pytest.approx(expected, rel=1e-4)
    alike = metrics.disagreement(dlviz.launch(worker, 2, args=("ddp",)).trace)
    assert alike.disagreement.tolist() == [0.0] * 4


def test_of_a_large_model_all_ranks_record_the_same_few_weights():
    def worker(comm):
        model = nn.Linear(40, 40)
        with torch.no_grad():
            model.weight.copy_(torch.arange(1600.0).view(40, 40))
            model.bias.fill_(-1.0)
        torch.manual_seed(comm.rank)
        watch_replica(comm, model, weights=100)
        with comm.span("phase", step=7):
            model(torch.zeros(1, 40))

    first, other = (
        [shot["array"] for shot in dlviz.launch(worker, 2).trace.buffers if shot["rank"] == rank]
        for rank in (0, 1)
    )
    before, record, *_ = first
    assert before[0] == -1 and record[0] == 7 and len(record) == 101
    assert len(set(record[1:])) > 90 and (other[1] == record).all()

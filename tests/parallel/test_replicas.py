"""Ranks that hold different models are found before training, and both are named."""

import re

import pytest
import torch
from torch import nn

import dlviz
from dlviz.parallel import STRATEGIES
from dlviz.parallel.data import DDP
from dlviz.parallel.replicas import start_alike


def models(case, rank):
    """What `rank` holds: on rank 2 something else."""
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


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_finds_them_before_its_first_step(name):
    def worker(comm):
        batches = [(torch.ones(4, 2), torch.zeros(4, dtype=torch.int64))]
        STRATEGIES[name](comm, nn.Linear(2, 3 if comm.rank else 2), batches, "sgd")

    with pytest.raises(dlviz.RankError, match="rank 0 and rank 1 hold different models") as error:
        dlviz.launch(worker, 2)
    assert not (error.value.trace.spans.step >= 0).any()


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

"""What a training returns, and what happens at its edges."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

import dlviz
from dlviz.cluster import Saved
from dlviz.models.result import Result
from dlviz.parallel import STRATEGIES, pipeline
from dlviz.parallel.data import DDP
from dlviz.parallel.tensor import ColumnParallelLinear

X = torch.randn(12, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
BATCHES = [(x, x.argmax(1)) for x in X.split(4)]


def test_a_result_is_a_dict_with_attributes_that_says_what_it_holds():
    result = Result([2.0, 1.0], {"w": torch.ones(())}, {2: 0.5}, lost=3)
    assert result == pickle.loads(pickle.dumps(result)) == copy.copy(result)
    assert result.steps == result["steps"] == 2 and result.lost == 3 and "losses" in dir(result)
    words = "<Result of 2 steps: loss 2 to 1, state of 1 tensors, evaluations={2: 0.5}, lost=3>"
    assert repr(result) == words
    assert "evaluations=..." in repr(Result([1.0], {}, {1: torch.arange(40)}))
    with pytest.raises(AttributeError, match="this Result has losses, state, steps, evaluations, "):
        print(result.loss)


def with_norms(comm, name):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)).double()
    return STRATEGIES[name](comm, net, BATCHES, lr=0.1).state


@pytest.mark.parametrize(
    "name", ["ddp", "naive", "central", "local_sgd", "late_all_reduce", "sufficient_factors"]
)
def test_all_ranks_return_rank_0s_buffers(name):
    first, second = dlviz.launch(with_norms, 2, args=(name,)).results
    assert first["1.running_mean"].any()
    for key, value in first.items():
        torch.testing.assert_close(second[key], value, rtol=0, atol=0)


def tied() -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    net[4].weight = net[0].weight
    return net.double()


def clipped(comm, name):
    how = {"clip": 0.05, "lr": 0.5}
    if name == "model":
        return STRATEGIES[name](comm, tied(), BATCHES, **how).state
    return pipeline.train(comm, pipeline.split(tied(), 2), BATCHES, microbatches=2, **how).state


@pytest.mark.parametrize("name", ["model", "pipeline"])
def test_a_parameter_that_parts_share_counts_once_in_the_norm(name):
    net = tied()
    for x, y in BATCHES:
        net.zero_grad()
        functional.cross_entropy(net(x), y).backward()
        assert nn.utils.clip_grad_norm_(net.parameters(), 0.05) > 0.05
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.5 * p.grad
    found = dlviz.launch(clipped, 2, args=(name,)).results[0]
    for key, value in net.state_dict().items():
        torch.testing.assert_close(found[key], value, rtol=1e-10, atol=1e-12)


def test_an_ensemble_trains_on_without_a_lost_rank():
    def worker(comm):
        def loss(outputs, labels):
            if comm.rank == 1:
                raise ValueError("no loss here")
            return functional.cross_entropy(outputs, labels)

        return STRATEGIES["ensemble"](comm, tied(), BATCHES, loss=loss, lr=0.1).losses

    run = dlviz.launch(worker, 3, may_lose=(1,), timeout=30)
    assert [*run.lost] == [1]
    without = [[loss != loss for loss in losses] for losses in run.results if losses is not None]
    assert without == [[False, True, False]] * 2


def lost_in_its_third_step(comm, name, evaluator):
    """In the second of two trainings, whose evaluations are its own."""
    evaluate = {"evaluate": lambda net: (net[0].bias.sum().item(), comm.rank)}
    first = STRATEGIES[name](comm, tied(), BATCHES, lr=0.1, **evaluate).evaluations

    def stop(step, loss, net):
        if comm.rank == evaluator and len(seen) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append(step)

    seen = []
    how = {"lr": 0.1, "callback": stop, **evaluate}
    return first, STRATEGIES[name](comm, tied(), BATCHES * 3, **how).evaluations


@pytest.mark.parametrize(("name", "evaluator"), [
    ("ensemble", 0), ("hogwild", 0), ("async_server", 1), ("sync_server", 1), ("easgd", 1),
])  # fmt: skip
def test_evaluations_outlive_the_rank_that_evaluates(name, evaluator):
    run = dlviz.launch(
        lost_in_its_third_step, 3, args=(name, evaluator), may_lose=(evaluator,), timeout=30
    )
    assert [*run.lost] == [evaluator]
    left = [found for found in run.results if found is not None]
    assert len(left) == 2 and left[0] == left[1]
    first, second = left[0]
    assert first and len(second) == 1 and next(iter(second.values()))[1] == evaluator


def test_what_a_rank_was_writing_when_it_was_lost_is_left_out(tmp_path):
    comm = SimpleNamespace(
        groups=SimpleNamespace(saves={}, path=lambda *_: str(tmp_path / "saved")),
        number=1, members=(0, 1), size=2, rank=0, waiting=SimpleNamespace(may_lose={0}),
    )  # fmt: skip
    saved = Saved(comm)
    for number in range(3):
        saved.add((number, "found" * 10))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    assert [number for number, _ in saved.of(0)] == [0, 1] and saved.of(1) == []
    assert Saved(comm).of(0) == []


def test_federated_evaluations_are_by_the_number_of_rounds():
    def worker(comm):
        rounds, net = iter((0.25, 0.5)), nn.Linear(4, 4).double()
        how = {"rounds": 2, "evaluate": lambda _: next(rounds)}
        return dlviz.federated.train(comm, net, BATCHES[:1], **how)

    first, second = dlviz.launch(worker, 2).results
    assert first.evaluations == {1: 0.25, 2: 0.5} and first.steps == len(first.losses) == 2
    assert second.evaluations == {} and second.steps == 0


def at_the_edges(comm):
    said = []

    def refused(call, *given):
        with pytest.raises(ValueError) as error:
            call(*given)
        said.append(str(error.value))

    refused(DDP, comm, tied())
    refused(STRATEGIES["hogwild"], comm, nn.Linear(4, 4, dtype=torch.complex64), BATCHES)
    refused(ColumnParallelLinear(comm, 4, 4).load, nn.Linear(4, 4))
    refused(pipeline.train, comm, tied(), BATCHES)
    read = iter(BATCHES)
    STRATEGIES["naive"](comm, tied(), read, lr=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        STRATEGIES["naive"](comm, tied(), read, lr=0.1)
    return said, [str(each.message) for each in caught]


def test_what_is_given_in_the_wrong_place_is_said_in_a_sentence():
    said, warned = dlviz.launch(at_the_edges, 1).results[0]
    starts = (
        "the first argument is a Comm, and DDP wraps a module: DDP(model, comm).",
        "hogwild counts lost updates in the imaginary parts of its memory",
        "ColumnParallelLinear loads a state, and was given a Linear: give its state_dict().",
        "a Sequential has no stages: give a list of modules, as split(model, stages)",
    )
    for words, start in zip(said, starts, strict=True):
        assert words.startswith(start)
    assert warned == ["there is no batch to train on: a generator that was read before is empty."]

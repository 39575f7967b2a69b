"""The strategy `tensor`: whole models cut, trained and assembled again; errors."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

import dlviz
from dlviz import datasets, models
from dlviz.analysis import memory
from dlviz.parallel import STRATEGIES, update_rules

SIZES = {"layers": 2, "hidden": 16, "heads": 4, "vocabulary": 24, "sequence": 8}


def transformer(**options):
    return models.Transformer(**SIZES | {"kv_heads": 2, "dropout": 0.2, "seed": 3} | options)


def text(rows=4, seed=0):
    """Token 0 is a word, or the padding where the loss says so."""
    tokens = torch.randint(0, 24, (rows, 9), generator=torch.Generator().manual_seed(seed))
    targets = tokens[:, 1:].clone()
    targets[0, 4:] = -100
    targets[1:, 2] = 0
    return tokens[:, :-1], targets


def plain(outputs, targets, ignore_index=-100):
    """Plain torch's loss of tokens."""
    flat = outputs.flatten(0, 1), targets.flatten()
    return nn.functional.cross_entropy(*flat, ignore_index=ignore_index)


def odd():
    """Three linear layers: no other undoes the cut of the last. One weight is not trained."""
    layers = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 8, bias=False), nn.GELU(),
        nn.Linear(8, 10),
    )  # fmt: skip
    models.seed_layers(layers, 4).double()
    layers[3].weight.requires_grad_(False)
    return layers


def images(steps=3):
    whole, labels = datasets.digits("train")
    return [(whole[i : i + 8].double(), labels[i : i + 8]) for i in range(steps)]


TASKS = {
    "transformer": (transformer, [text(seed=i) for i in range(3)], models.token_loss, {}),
    "tokens cut, clipped": (
        lambda: transformer().double(),
        [(x, y.clamp(min=0)) for x, y in (text(seed=i) for i in range(3))],
        partial(models.token_loss, ignore_index=0),
        {"sequence_parallel": True, "clip": 0.5},
    ),
    "odd": (odd, images(), nn.functional.cross_entropy, {"all_reduce": "tree"}),
}


def worker(comm):
    found = {}
    for name, (model, batches, loss, options) in TASKS.items():
        whole = model()
        found[name] = STRATEGIES["tensor"](
            comm, whole, batches, "momentum", loss=loss, lr=0.1, **options
        )
        assert not any(p.numel() for p in whole.parameters()), "what was cut is still held"
    return found


def one_process(name):
    make, batches, loss, options = TASKS[name]
    losses_of_tokens = {"transformer": plain, "tokens cut, clipped": partial(plain, ignore_index=0)}
    loss = losses_of_tokens.get(name, loss)
    model, losses = make(), []
    rule, parameters = update_rules.make("momentum", 0.1), list(model.parameters())
    for inputs, labels in batches:
        model.zero_grad()
        value = loss(model(inputs), labels)
        value.backward()
        if "clip" in options:
            nn.utils.clip_grad_norm_(parameters, options["clip"])
        losses.append(value.item())
        rule.step(parameters, [p.grad for p in parameters])
    return losses, model.state_dict()


def test_the_strategy_equals_one_process_and_gives_the_whole_state_to_rank_0():
    run = dlviz.launch(worker, 4)
    run.trace.validate()
    for name in TASKS:
        losses, state = one_process(name)
        within = 1e-5 if name == "transformer" else 1e-10
        found = [result[name] for result in run.results]
        assert all(each["losses"] == found[0]["losses"] for each in found)
        assert found[0]["losses"] == pytest.approx(losses, abs=within), name
        assert [*found[0]["state"]] == [*state] and not any(each["state"] for each in found[1:])
        for key, value in state.items():
            gap = (found[0]["state"][key] - value).norm() / value.norm().clamp_min(0.1)
            assert gap <= within, (name, key)


def refused(comm):
    """The error of each call before its first step."""
    digits, tokens, train = images(1), [text()], STRATEGIES["tensor"]
    batch_norm = nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))
    other = [text(seed=int(comm.rank == 2))]
    padding = [(torch.zeros(2, 8, dtype=torch.int64), torch.full((2, 8), -100))]
    token = {"loss": models.token_loss}
    said = []
    for model, batches, options in [
        (models.LSTM(9), tokens, token),
        (batch_norm, digits, {}),
        (models.ConvNet(), digits, {}),
        (nn.Sequential(nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, 10)), digits, {}),
        (models.MLP(), digits, {"sequence_parallel": True}),
        (transformer(), tokens, {}),
        (transformer(layers=1 + (comm.rank == 1)), tokens, token),
        (transformer(seed=int(comm.rank == 3)), tokens, token),
        (transformer(), other, token),
        (transformer(), padding, token),
        (transformer(), tokens, token | {"all_reduce": "star"}),
    ]:
        with pytest.raises(ValueError) as error:
            train(comm, model, batches, "sgd", **options)
        said.append(str(error.value))
    return said


def test_models_and_batches_that_cannot_be_trained_so_are_refused_on_every_rank():
    expected = [
        "layer 0, a _Tokens, cannot be cut over ranks: use a models.Transformer, or an nn.Seq",
        "layer 1, a BatchNorm1d, cannot be cut over ranks",
        "layer 0, a Conv2d, cannot be cut over ranks",
        "outputs=9 cannot be split over 4 ranks",
        "sequence_parallel=True has no sequence to cut in a Sequential",
        "loss=cross_entropy of a Transformer needs all logits of a token, and no rank has them",
        "rank 0 and rank 1 hold different models: ",
        "rank 0 and rank 3 hold different weights for tokens",
        "rank 0 and rank 2 hold different batches: rank 0 has inputs of batch 0 = int64(4, 8)",
        "the batch weighs 0 on all ranks together",
        "all_reduce='star' is not known",
    ]
    for said in dlviz.launch(refused, 4).results:
        for sentence, begin in zip(said, expected, strict=True):
            assert sentence.startswith(begin)


def held(comm):
    """The memory of the Trace, beside what the rank has."""
    for cut in (False, True):
        options = {"loss": models.token_loss, "lr": 0.01, "sequence_parallel": cut}
        STRATEGIES["tensor"](comm, transformer(), [text()], "adam", **options)


def test_the_trace_shows_what_each_rank_held_and_when_it_computed():
    trace = dlviz.launch(held, 4).trace
    whole = sum(p.nbytes for p in transformer().parameters())
    weights = [memory.held(trace, "weights")[rank].peak for rank in range(4)]
    assert len({*weights}) == 1 and weights[0] < whole / 2
    assert [each.peak for each in memory.held(trace, "gradients")] == weights
    assert [each.peak for each in memory.held(trace, "update rule")] == [2 * weights[0]] * 4
    activations = memory.held(trace, "activations")
    assert all(each.peak > 0 and each.level[-1] == 0 for each in activations)
    step = trace.only(step=0)
    for kind in ("forward", "backward"):
        names = step.only(rank=1, kind=kind).spans.name.tolist()
        assert {"tokens", "norm", "blocks.1.attention.k", "blocks.0.mlp.down"} <= {*names}
    computed = step.only(kind=("forward", "backward")).spans
    for rank in range(4):  # what is sent is sent between the layers
        talks = step.only(rank=rank, kind="collective").spans
        mine = computed[computed.rank == rank]
        apart = (talks.end[:, None] <= mine.start) | (talks.start[:, None] >= mine.end)
        assert apart.all()

"""The strategy `tensor`: whole models cut, trained and put together again; what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dlviz
from dlviz import datasets, models
from dlviz.parallel import STRATEGIES, update_rules

SIZES = {"layers": 2, "hidden": 16, "heads": 4, "vocabulary": 24, "sequence": 8}


def transformer(**options):
    return models.Transformer(**SIZES | {"kv_heads": 2, "dropout": 0.2, "seed": 3} | options)


def text(rows=4, seed=0):
    tokens = torch.randint(1, 24, (rows, 9), generator=torch.Generator().manual_seed(seed))
    tokens[0, 5:] = 0
    return tokens[:, :-1], tokens[:, 1:]


def odd():
    """Three linear layers: the last has nobody to undo its cut. One weight is not trained."""
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
        [text(seed=i) for i in range(3)],
        models.token_loss,
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


def test_the_strategy_takes_the_path_of_one_process_and_gives_the_whole_state_to_rank_0():
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

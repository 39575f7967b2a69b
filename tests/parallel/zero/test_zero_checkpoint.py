"""Checkpoints of ZeRO: another number of ranks goes on with them, and so does torch."""

import warnings

import pytest
import torch
from torch import nn
from zero_oracle import OPTIMIZERS, Reader, batches, loss, one_process, weight

import dlviz
from dlviz.parallel import update_rules, zero

HOW = {"loss": loss, "weight": weight}
RULES = {
    "adam": lambda: update_rules.make("adam", 0.02),
    "momentum": lambda: OPTIMIZERS["momentum"],
}


def first_half(comm, folder):
    for rule, made in RULES.items():
        save = f"{folder}/{rule}"
        zero.train(comm, Reader(), batches()[:10], made(), stage=3, save=save, **HOW)


def second_half(comm, folder, stages):
    found = []
    for rule, stage in stages:
        load = f"{folder}/{rule}"
        again = f"{folder}/again {rule}"
        how = {"load": load, "save": again, **HOW}
        found.append(zero.train(comm, Reader(), batches()[10:], RULES[rule](), stage=stage, **how))
    return found


def read(folder, key, like):
    from torch.distributed.checkpoint import load

    values = {key: torch.empty_like(like)}
    with warnings.catch_warnings(action="ignore"):
        load(values, checkpoint_id=folder, no_dist=True)
    return values[key]


def test_another_number_of_ranks_and_stage_goes_on_and_torch_reads_the_files(tmp_path):
    dlviz.launch(first_half, 3, args=(tmp_path,))
    for ranks, stages in (
        (2, [("adam", 3), ("momentum", 1)]),
        (5, [("momentum", 2), ("adam", 1)]),
    ):
        results = dlviz.launch(second_half, ranks, args=(tmp_path, stages)).results[0]
        for (rule, _), result in zip(stages, results, strict=True):
            losses, state, optimizer = one_process(rule)
            assert result.losses == pytest.approx(losses[10:], rel=1e-12)
            folder = f"{tmp_path}/again {rule}"
            for name, value in state.items():
                torch.testing.assert_close(result.state[name], value, rtol=1e-10, atol=1e-12)
                assert torch.equal(read(folder, f"model.{name}", value), result.state[name])
            assert any(name.startswith("embed.weight") for name in optimizer)
            for name, value in optimizer.items():  # in torch's names, of the plain model
                saved = read(folder, f"optimizer.state.{name}", value)
                torch.testing.assert_close(saved, value, rtol=1e-9, atol=1e-12)


def test_what_torch_has_written_is_read(tmp_path):
    from torch.distributed.checkpoint import save

    net = nn.Linear(3, 2)
    with warnings.catch_warnings(action="ignore"):
        names = {f"model.{name}": p.detach() for name, p in net.named_parameters()}
        save(names, checkpoint_id=tmp_path, no_dist=True)

    def worker(comm):
        torch.manual_seed(comm.rank)
        x = torch.ones(4, 3)
        rows = [(x, torch.zeros(4, dtype=torch.int64))]
        return zero.train(comm, nn.Linear(3, 2), rows, "sgd", lr=0.0, load=str(tmp_path)).state

    state = dlviz.launch(worker, 2).results[0]
    for name, value in net.state_dict().items():
        assert torch.equal(state[name], value)


def refused(comm, folder):
    said = []
    for model, rule, load in (
        (nn.Linear(4, 2), "adam", "adam"),
        (Reader(), "momentum", "adam"),
        (Reader(), "adam", "nothing"),
    ):
        with pytest.raises(ValueError) as error:
            zero.train(comm, model, batches(), rule, load=f"{folder}/{load}", **HOW)
        said.append(str(error.value))
    return said


def test_a_checkpoint_of_another_model_or_rule_is_refused(tmp_path):
    dlviz.launch(first_half, 2, args=(tmp_path,))
    for said in dlviz.launch(refused, 3, args=(tmp_path,)).results:
        assert "holds another model: weight is absent there and of shape (2, 4) here" in said[0]
        assert "holds exp_avg, exp_avg_sq, step where Momentum needs momentum_buffer" in said[1]
        assert "holds no checkpoint: name one that save= wrote" in said[2]

"""ZeRO's stages against one process of plain torch, FSDP2 and ZeroRedundancyOptimizer."""

import copy
import itertools
import warnings

import pytest
import torch
from side_by_side import of_size, on_each_size
from torch import nn
from torch.utils.checkpoint import checkpoint
from zero_oracle import OPTIMIZERS, RATES, Reader, batches, loss, one_process, weight

import dlviz
from dlviz.parallel import update_rules, zero

LAYOUTS = [[5], [3, 2], [1]]
RANKS = [1, 2, 3, 5]
CASES = [
    {"stage": 1, "microbatches": 3, "bucket_bytes": 200, "clip": 0.05},
    {"stage": 1, "naive": True},
    {"stage": 2, "microbatches": 3, "bucket_bytes": 200, "clip": 0.05},
    {"stage": 3},
    {"stage": 3, "microbatches": 3, "bucket_bytes": 200, "prefetch": 0, "clip": 0.05},
    {"stage": 3, "prefetch": 2, "reshard_after_forward": False, "microbatches": 2},
]
HOW = {"loss": loss, "weight": weight}


def trained(comm):
    found = [
        zero.train(comm, Reader(), batches(), "adam", lr=RATES["adam"], **HOW, **case)
        for case in CASES
    ]
    found.append(zero.train(comm, Reader(), batches(), OPTIMIZERS["momentum"], stage=3, **HOW))
    return found


@pytest.fixture(scope="module")
def run():
    run = dlviz.launch(on_each_size, 5, args=(LAYOUTS, trained), timeout=200)
    run.trace.validate()
    return run


@pytest.mark.parametrize("ranks", RANKS)
def test_twenty_steps_of_every_stage_equal_one_process(run, ranks):
    results = of_size(run, ranks)
    for number, case in enumerate([*CASES, {"stage": 3, "rule": "momentum"}]):
        losses, state, _ = one_process(case.get("rule", "adam"), case.get("clip"))
        for rank, found in results.items():
            result = found[number]
            assert result.losses == pytest.approx(losses, rel=1e-12, abs=1e-12), case
            if case["stage"] == 3 and rank != min(results):
                assert result.state == {}
                continue
            for name, value in state.items():
                torch.testing.assert_close(
                    result.state[name], value, rtol=1e-10, atol=1e-12, msg=f"{name} {case}"
                )


@pytest.mark.parametrize(
    ("length", "ranks", "expected"),
    [(9, 2, (5, 1)), (9, 3, (3, 0)), (2, 5, (1, 3)), (0, 4, (0, 0)), (7, 1, (7, 0))],
)
def test_shards_are_equal_and_the_last_ones_are_padded(length, ranks, expected):
    assert zero.shard(length, ranks) == expected
    with pytest.raises(ValueError, match="ranks=0 has to be a whole number, 1 or more"):
        zero.shard(length, 0)


# -- in torch -----------------------------------------------------------------------------------
WIDTHS = (12, 10, 9, 3)


def plain():
    torch.manual_seed(0)
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(WIDTHS)]
    return nn.Sequential(*[each for layer in layers for each in (layer, nn.Tanh())])


def even():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(20, 12, WIDTHS[0], generator=generator)
    return [(each, each.argmax(1) % WIDTHS[-1]) for each in x]


def steps_of(comm, net, optimizer):
    losses = []
    for x, y in even():
        x, y = (each.tensor_split(comm.size)[comm.rank] for each in (x, y))
        optimizer.zero_grad()
        value = nn.functional.cross_entropy(net(x), y)
        value.backward()
        optimizer.step()
        mean = value.detach().clone()
        comm.all_reduce(mean, "avg")
        losses.append(mean.item())
    return losses


def like_torch(comm):
    """Losses and parameters of both, by stage."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import DTensor

    with warnings.catch_warnings(action="ignore"):  # torch's own, of torch.jit
        from torch.distributed.optim import ZeroRedundancyOptimizer

    def whole(p):
        return p.detach().full_tensor() if isinstance(p, DTensor) else p.detach()

    found, mesh = {}, init_device_mesh("cpu", (comm.size,))
    for name, precision in (("float32", None), ("bfloat16", torch.bfloat16)):
        net = plain()
        how = {}
        if precision is not None:
            policy = MixedPrecisionPolicy(precision, precision, output_dtype=torch.float32)
            how = {"mp_policy": policy}
        for layer in [*net][::2]:
            fully_shard(layer, mesh=mesh, **how)
        fully_shard(net, mesh=mesh, **how)
        losses = steps_of(comm, net, torch.optim.Adam(net.parameters(), lr=0.01))
        theirs = losses, [whole(p) for p in net.parameters()]
        for stage in (2, 3):
            ours = zero.train(comm, plain(), even(), lr=0.01, stage=stage, precision=name)
            found[stage, name] = ours, theirs
    net = plain()
    shards = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01)
    ddp = nn.parallel.DistributedDataParallel(net)
    theirs = steps_of(comm, ddp, shards), [p.detach() for p in net.parameters()]
    found[1, "float32"] = zero.train(comm, plain(), even(), lr=0.01, stage=1), theirs
    return found


@pytest.mark.parametrize("ranks", [2, 3])
def test_stages_train_as_fsdp2_and_zero_redundancy_optimizer_do(ranks):
    found = dlviz.launch(like_torch, ranks).results[0]
    assert len(found) == 5
    for (_, precision), (ours, (losses, state)) in found.items():
        within = 1e-6 if precision == "float32" else 0.02
        assert ours.losses == pytest.approx(losses, rel=10 * within)
        for mine, other in zip(ours.state.values(), state, strict=True):
            assert mine.dtype == torch.float32
            torch.testing.assert_close(mine, other, rtol=10 * within, atol=within)
    if ranks == 2:  # the masters are not rounded
        assert any(
            (v != v.bfloat16().float()).any() for v in found[3, "bfloat16"][0].state.values()
        )


# -- rules --------------------------------------------------------------------------------------
class ByNorm(update_rules.SGD):
    """As LARS."""

    def move(self, w, g, t):
        w -= self.lr * g * w.norm() / g.norm()


def refused(comm):
    said = []
    for rule in (ByNorm(0.1), lambda p: torch.optim.Adafactor(p, lr=0.1)):
        with pytest.raises(ValueError) as error:
            zero.train(comm, plain(), even(), rule, stage=2)
        said.append(str(error.value))
    for how in (
        {"stage": 4}, {"stage": "3"}, {"prefetch": -1}, {"microbatches": 0}, {"bucket_bytes": 0},
        {"precision": "float16"}, {"stage": 3, "naive": True}, {"save": "x"},
    ):  # fmt: skip
        part = comm.split(comm.rank) if "save" in how else comm
        with pytest.raises(ValueError) as error:
            zero.train(part, plain(), even(), **how)
        said.append(str(error.value))
    for name in update_rules.NAMES:
        for printed in (False, True):
            rule = update_rules.make(name, 0.001, printed=printed)
            zero.train(comm, plain(), even()[:1], copy.copy(rule), stage=1)
    return said


def test_what_zero_cannot_do_is_refused_and_every_rule_of_the_package_trains():
    starts = [
        "ByNorm moves a value by others of its tensor (their norm, say)",
        "Adafactor moves a value by others of its tensor",
        "stage=4 is no stage of ZeRO: use 1 (shards of the rule's state), 2",
        "stage='3' is no stage",
        "prefetch=-1 has to be a whole number, 0 or more",
        "microbatches=0 has to be a whole number, 1 or more",
        "bucket_bytes=0 has to be",
        "precision='float16' is not known: use 'float32' or 'bfloat16'",
        "naive=True is a form of stage 1, and this is stage=3",
        "save='x' needs all 2 ranks of the run, and",
    ]
    for said in dlviz.launch(refused, 2).results:
        for words, start in zip(said, starts, strict=True):
            assert words.startswith(start)


class Checkpointed(nn.Sequential):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)


def normed():
    torch.manual_seed(0)
    blocks = [Checkpointed(nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 12)) for _ in range(2)]
    attention = nn.TransformerEncoderLayer(12, 2, 8, dropout=0.0, batch_first=True)
    return nn.Sequential(*blocks, nn.BatchNorm1d(12, track_running_stats=True), attention)


def evaluated(model):
    return model.eval()(even()[0][0]).tolist()


def forms(comm):
    """Of recomputation, of a layer whose child is not called (attention's), of buffers."""
    found = []
    for how in ({"stage": 1}, {"stage": 3}, {"stage": 3, "precision": "bfloat16"}):
        how |= {"evaluate": evaluated, "evaluate_every": 4, "rule": "sgd"}
        found.append(zero.train(comm, normed(), even()[:4], **how))
    return found


def test_checkpointed_layers_attention_and_buffers_train_alike_in_all_stages():
    one, three, low = dlviz.launch(forms, 2).results[0]
    assert one.losses == pytest.approx(three.losses, rel=1e-6)
    assert one.losses == pytest.approx(low.losses, rel=0.05)
    for name, value in one.state.items():
        torch.testing.assert_close(three.state[name], value, rtol=1e-5, atol=1e-6)
        assert low.state[name].dtype == value.dtype
    assert torch.tensor(one.evaluations[4]).allclose(torch.tensor(three.evaluations[4]), atol=1e-5)
    assert low.evaluations.keys() == {4}

"""DDP whose buckets are coded, beside one process and beside torch's DDP with the same codes."""

import copy
import os
from socket import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import dlviz
from dlviz import compression, metrics
from dlviz.compression.torch_hook import HookState, hook
from dlviz.datasets import batches, digits
from dlviz.models import MLP
from dlviz.parallel import data
from dlviz.parallel.data import DDP

HOWS = ["all_gather", "reduce_scatter"]


def pairs(steps=6, batch=22):  # 22 rows on 4 ranks: 5, 6, 5, 6
    images, labels = digits("train")
    return [*batches(images[:200], labels[:200], batch=batch, seed=0, steps=steps)]


def trained(comm, compress, options=None, **more):
    how = {"lr": 0.3, "bucket_bytes": 2**12, "compress": compress, **(options or {}), **more}
    return data.train(comm, MLP((64, 32, 10), seed=1), pairs(), "sgd", **how)


def test_a_code_that_loses_nothing_trains_as_one_process():
    """lossless, and top-k of all values, on unequal shards."""
    expected = dlviz.launch(trained, 1, args=(None,)).results[0]
    for name, options in {"lossless": {}, "topk": {"share": 0.999999}}.items():
        for how in HOWS:
            got = dlviz.launch(trained, 4, args=(name, {"how": how, **options})).results[0]
            assert got["losses"] == pytest.approx(expected["losses"], rel=1e-5)
            for key, value in got["state"].items():
                assert torch.allclose(value, expected["state"][key], atol=1e-5)


def by_hand(name, options, feedback, ranks=4):
    """One process: each rank's mean gradient of its rows, coded, in buckets as DDP cuts them."""
    net, bucket_bytes = MLP((64, 32, 10), seed=1), 2**12
    groups, held = [[]], 0
    for p in reversed([*net.parameters()]):
        if groups[-1] and held + p.nbytes > bucket_bytes:
            groups.append([])
            held = 0
        groups[-1].append(p)
        held += p.nbytes
    sizes = [sum(p.numel() for p in group) for group in groups]
    codes = [
        [
            compression.make(name, **options).for_bucket([p.shape for p in group], rank, number)
            for number, group in enumerate(groups)
        ]
        for rank in range(ranks)
    ]
    lost = [[torch.zeros(size) for size in sizes] for _ in range(ranks)]
    for images, labels in pairs():
        means = [torch.zeros(size) for size in sizes]
        for rank in range(ranks):
            own, wanted = (part.tensor_split(ranks)[rank] for part in (images, labels))
            net.zero_grad()
            nn.functional.cross_entropy(net(own), wanted).backward()
            for number, group in enumerate(groups):
                g = torch.cat([p.grad.flatten() for p in group])
                v = g * len(wanted) / len(labels) + lost[rank][number]
                code = codes[rank][number]
                decoded = code.decode(code.encode(v), len(v))
                means[number] += decoded
                if feedback:
                    lost[rank][number] = v - decoded
        for mean, group in zip(means, groups, strict=True):
            for p, part in zip(group, mean.split([p.numel() for p in group]), strict=True):
                p.data -= 0.3 * part.view(p.shape)
    return net.state_dict(), lost


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize(
    ("name", "options"), [("one_bit", {}), ("qsgd", {"bits": 6}), ("topk", {"share": 0.05})]
)
def test_coded_buckets_train_as_one_process_with_the_same_codes(name, options, feedback):
    expected, lost = by_hand(name, options, feedback)
    run = dlviz.launch(trained, 4, args=(name, {**options, "feedback": feedback}))
    for key, value in run.results[0]["state"].items():
        assert torch.allclose(value, expected[key], atol=2e-5), key
    spans = run.trace.only(kind="collective", rank=2).spans
    norms = [row.fields["residual"] for row in spans if row.fields and "residual" in row.fields]
    if feedback:
        assert norms[-len(lost[2]) :] == pytest.approx([float(e.norm()) for e in lost[2]], rel=1e-3)
    else:
        assert set(norms) == {0.0}


def test_coding_overlaps_backward_on_its_own_lane():
    run = dlviz.launch(trained, 4, args=("one_bit",))
    spans = run.trace.only(kind="compress").spans
    assert {row.lane for row in spans} == {"comm"}
    encoded = [row for row in spans if row.name == "encode" and row.rank == 0]
    buckets = 2
    assert len(encoded) == 6 * buckets
    assert all(row.fields["raw"] > 20 * row.nbytes for row in encoded)
    sent = metrics.bytes_sent(run.trace)
    dense = metrics.bytes_sent(dlviz.launch(trained, 4, args=(None,)).trace)
    assert sum(sent) < sum(dense) / 5


def state_saved(comm, name, options):
    def made(widths=(64, 32, 10)):
        by = compression.make(name, **options)
        return DDP(MLP(widths, seed=1), comm, compressor=by, feedback=name != "qsgd")

    net, again, inputs = made(), made(), torch.randn(8, 64)

    def step(module):
        module.zero_grad()
        module(inputs).square().mean().backward()
        return [p.grad.clone() for p in module.parameters()]

    step(net)
    again.load_state_dict(copy.deepcopy(net.state_dict()))
    same = all(map(torch.equal, step(net), step(again)))
    if name != "qsgd":
        with pytest.raises(ValueError, match="residual"):
            made((64, 16, 10)).codes.load_state_dict(net.codes.state_dict())
    return same


@pytest.mark.parametrize(("name", "options"), [("one_bit", {}), ("qsgd", {}), ("power", {})])
def test_a_saved_model_goes_on_with_what_codes_lost_their_draws_and_products(name, options):
    assert dlviz.launch(state_saved, 2, args=(name, options)).results == [True, True]


def cut_anew(comm):
    """A layer is frozen after a step: what was lost of the other's gradient counts in the next."""
    net = DDP(MLP((64, 32, 10), seed=1), comm, compressor=compression.make("topk", share=0.1))
    inputs = torch.randn(8, 64, generator=torch.Generator().manual_seed(comm.rank))
    last = [*net.parameters()][-2:]
    net(inputs).square().mean().backward()
    (code,) = net.codes._codes.values()
    lost = code.own.residual[: sum(p.numel() for p in last)].clone()  # the last ones come first
    for p in [*net.parameters()][:2]:
        p.requires_grad_(False)
    net.zero_grad()
    (0 * net(inputs)).sum().backward()  # no gradient: the codes are of what was lost alone
    (code,) = net.codes._codes.values()
    sent = torch.cat([p.grad.flatten() for p in reversed(last)])
    comm.all_reduce(lost)
    left = code.own.residual.clone()
    comm.all_reduce(left)
    return torch.allclose(lost, sent + left, atol=1e-6) and bool(sent.any())


def test_buckets_that_are_cut_anew_go_on_with_what_was_lost():
    assert dlviz.launch(cut_anew, 2).results == [True, True]


def not_finite(comm):
    net = DDP(MLP((64, 32, 10), seed=1), comm, compressor=compression.make("one_bit"))
    inputs = torch.full((4, 64), torch.nan if comm.rank == 1 else 1.0)
    net(inputs).square().mean().backward()


def test_a_gradient_that_is_not_finite_names_parameter_and_rank():
    with pytest.raises(dlviz.RankError, match=r"the gradient of \d\.\w+ of rank 1 is nan"):
        dlviz.launch(not_finite, 2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"compress": "zip"}, "zip"),
        ({"compress": None, "options": {"share": 0.1}}, "give compress="),
        ({"compress": "topk", "options": {"share": 1.5}}, "share"),
        ({"compress": "one_bit", "options": {"how": "all_reduce"}}, "cannot be added"),
        ({"compress": "one_bit", "options": {"method": "naive"}}, "method='ddp'"),
    ],
)
def test_what_is_no_code_is_refused_in_a_sentence(options, says):
    with pytest.raises(dlviz.RankError, match=says):
        dlviz.launch(trained, 2, kwargs=options)


def under_torch(rank, port, name, file):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(MLP((64, 32, 10), seed=1))
    net.register_comm_hook(HookState(compression.make(name)), hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
    for images, labels in pairs(batch=24):
        half = slice(12 * rank, 12 * rank + 12)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images[half]), labels[half]).backward()
        optimizer.step()
    if rank == 0:
        torch.save(net.module.state_dict(), file)
    dist.destroy_process_group()


@pytest.mark.parametrize("name", ["lossless", "fp16"])
def test_a_compressor_works_under_torchs_own_ddp(name, tmp_path):
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path / "state.pt"
    mp.spawn(under_torch, args=(port, name, file), nprocs=2)  # ends both if one fails

    def alone(comm):
        return data.train(comm, MLP((64, 32, 10), seed=1), pairs(batch=24), "sgd", lr=0.3)

    expected = dlviz.launch(alone, 1).results[0]["state"]
    for key, value in torch.load(file).items():
        tolerance = 1e-5 if name == "lossless" else 5e-3
        assert torch.allclose(value, expected[key], atol=tolerance)

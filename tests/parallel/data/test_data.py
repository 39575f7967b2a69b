"""Data parallelism against one process of plain torch on the whole batch."""

import copy
from functools import cache
from itertools import product

import pytest
import torch
from side_by_side import of_size, on_each_size
from torch import nn

import dlviz
from dlviz.parallel.data import DDP, average_gradients, train

LAYOUTS = [[7], [4, 3], [2, 1]]  # of seven ranks, the groups that train side by side
RANKS = [1, 2, 3, 4, 7]


class Odd(nn.Module):
    """Unlike any model of the package: tied weights, a layer used twice, a parameter that nothing
    uses, one that only some examples use, a branch, an in-place ReLU, a buffer."""

    def __init__(self, dtype):
        super().__init__()
        generator = torch.Generator().manual_seed(5)

        def weights(*shape):
            return nn.Parameter(torch.randn(*shape, generator=generator, dtype=dtype) / 4)

        self.encode = nn.Linear(6, 10, bias=False, dtype=dtype)
        self.encode.weight = weights(10, 6)
        self.middle = nn.Linear(10, 10, dtype=dtype)
        self.middle.weight, self.middle.bias = weights(10, 10), weights(10)
        self.again = self.middle
        self.relu = nn.ReLU(inplace=True)
        self.unused = weights(3)
        self.branch = weights(6)
        self.register_buffer("seen", torch.zeros(1, dtype=dtype))

    def forward(self, x, flags):
        self.seen += 1
        hidden = self.relu(self.middle(self.relu(self.encode(x))))
        hidden = self.relu(self.again(hidden))
        out = hidden @ self.encode.weight  # tied to the encoder
        if flags.any():  # only the ranks whose shard holds a flagged example use `branch`
            out = out + flags[:, None] * self.branch
        return out


def sample(dtype, length=23):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(length, 6, generator=generator, dtype=dtype)
    target = torch.randn(length, 6, generator=generator, dtype=dtype)
    flags = torch.zeros(length, dtype=dtype)
    flags[-1] = 1
    return x, flags, target


def oracle(dtype, steps):
    """Gradients and parameters of one process on the whole batch."""
    model, (x, flags, target) = Odd(dtype), sample(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x, flags), target).backward()
        optimizer.step()
    return model


def worker(comm, method, all_reduce, dtype, steps, bucket_bytes=200):
    torch.manual_seed(comm.rank)
    model = Odd(dtype)
    if comm.rank:
        with torch.no_grad():
            for p in model.parameters():
                p.add_(1)  # rank 0's values must win
    x, flags, target = (t.tensor_split(comm.size)[comm.rank] for t in sample(dtype))
    if method == "ddp":
        net = DDP(model, comm, all_reduce, bucket_bytes)
        model.seen += 10 * comm.rank  # the next forward must undo it
    else:
        model = net = Odd(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        with comm.span("phase", step=step):
            optimizer.zero_grad()
            nn.functional.mse_loss(net(x, flags), target).backward()
            if method == "naive":
                average_gradients(comm, model, len(x), all_reduce)
            optimizer.step()
    grads = {name: p.grad for name, p in model.named_parameters()}
    return grads, dict(model.named_parameters()), model.seen.item()


def assert_equal(found, expected, dtype):
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    for name, value in expected.items():
        if value is None:
            assert found[name] is None, name
        else:
            assert (found[name] - value).norm() <= tolerance * value.norm(), name


METHODS, DTYPES = ("naive", "ddp"), (torch.float64, torch.float32)


def every_case(comm):
    return {
        (method, dtype): worker(
            comm, method, "ring" if dtype == torch.float64 else "backend", dtype, 3
        )
        for method, dtype in product(METHODS, DTYPES)
    }


@cache
def every_run():
    run = dlviz.launch(on_each_size, ranks=7, args=(LAYOUTS, every_case))
    run.trace.validate()
    return run


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ranks", RANKS)
def test_gradients_and_parameters_equal_one_process(ranks, method):
    for dtype in DTYPES:
        expected = oracle(dtype, steps=3)
        grads = {name: p.grad for name, p in expected.named_parameters()}
        results = of_size(every_run(), ranks).values()
        assert len(results) == ranks
        for result in results:
            found, parameters, _ = result[method, dtype]
            assert_equal(found, grads, dtype)
            assert_equal(parameters, dict(expected.named_parameters()), dtype)


def test_every_rank_starts_a_forward_from_rank_0s_buffers():
    run = dlviz.launch(worker, ranks=3, args=("ddp", "ring", torch.float32, 2))
    assert [seen for _, _, seen in run.results] == [2, 2, 2]


def test_a_parameter_without_gradient_anywhere_still_has_none():
    run = dlviz.launch(worker, ranks=3, args=("ddp", "backend", torch.float64, 1))
    for grads, _, _ in run.results:
        assert grads["unused"] is None
        assert grads["branch"] is not None


def steps_of(model, batches):
    """Losses and state of one process of plain torch."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict()


@pytest.mark.parametrize("method", ["naive", "ddp"])
def test_training_on_digits_equals_one_process(method):
    model = dlviz.models.MLP(seed=3)
    batches = list(dlviz.datasets.batches(*dlviz.datasets.digits("train"), batch=50, steps=8))
    losses, state = steps_of(model, batches)
    how = {"method": method, "lr": 0.5}
    run = dlviz.launch(train, ranks=3, args=(model, batches), kwargs=how)
    if method == "naive":  # every all-reduce of a step says what it reduces
        names = ["counts", *(name for name, _ in model.named_parameters())]
        spans = run.trace.only(kind="collective", step=0, rank=0).spans
        assert spans.name[spans.depth == 1].tolist() == names
    for result in run.results:
        assert result["losses"] == pytest.approx(losses, rel=1e-4)
        for name, value in state.items():
            assert torch.allclose(result["state"][name], value, rtol=1e-3, atol=1e-5)


def test_a_rank_without_examples_changes_nothing():
    model = dlviz.models.MLP((64, 8, 10), seed=3)
    images, labels = dlviz.datasets.digits("train")
    batches = [(images[:2], labels[:2])]
    for method in ("ddp", "naive"):
        losses, state = steps_of(model, batches)
        how = {"method": method, "lr": 0.5}
        run = dlviz.launch(train, ranks=3, args=(model, batches), kwargs=how)
        assert run.results[0]["losses"] == pytest.approx(losses)
        for name, value in state.items():
            assert torch.allclose(run.results[2]["state"][name], value, atol=1e-6)


@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine makes it late
def test_buckets_are_all_reduced_on_their_lane_while_backward_goes_on():
    model = dlviz.models.MLP((64, 32, 32, 10), seed=3)
    batches = list(dlviz.datasets.batches(*dlviz.datasets.digits("train"), batch=32, steps=2))
    machine = dlviz.machine.classroom(2)
    options = {"bucket_bytes": 4300}
    run = dlviz.launch(train, ranks=2, machine=machine, args=(model, batches), kwargs=options)
    trace = run.trace
    trace.validate()
    for rank in range(2):
        rows = trace.only(rank=rank, kind="backward", step=1).spans.rows()
        fc3, fc2, fc1 = sorted(rows, key=lambda s: s.start)
        buckets = [
            s
            for s in trace.only(rank=rank, lane="comm", step=1).spans.rows()
            if s.kind == "collective" and s.name.startswith("bucket")
        ]
        assert [s.bucket for s in buckets] == [0, 1, 2]
        # bucket 0 holds all of fc3 and the bias of fc2: it leaves as soon as it is full,
        assert buckets[0].start == pytest.approx(fc2.end, abs=1e-9)
        assert buckets[0].start < fc1.end  # while backward goes on
        update = next(iter(trace.only(rank=rank, kind="update", step=1).spans.rows()))
        assert update.start >= buckets[-1].end - 1e-9


def launched(comm, recorded):
    """Gradients of one step; and for each bucket the number of the gradient with which it left."""
    torch.manual_seed(0)
    layers = [nn.Linear(6, 6) for _ in range(4)]
    model = nn.Sequential(*layers).double()
    comm.recorder.on = recorded
    net = DDP(model, comm, bucket_bytes=400)  # so that buckets end inside layers
    there, order, submit = [], [], net._reducer._lane.submit

    def seen(function, *args):
        order.append((args[-1], len(there)))
        return submit(function, *args)

    net._reducer._lane.submit = seen
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(there.append)
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(comm.rank)).double()
    net(x).pow(2).mean().backward()
    comm.recorder.on = True
    return [p.grad for p in model.parameters()], order


def test_a_bucket_leaves_with_the_gradient_that_fills_it_recorded_or_not():
    recorded, unseen = (dlviz.launch(launched, 2, args=(each,)).results for each in (True, False))
    for (gradients, order), (others, its_order) in zip(recorded, unseen, strict=True):
        # Bucket 0 holds the last layer and the bias of the one before, and so on.
        assert order == its_order == [(0, 2), (1, 4), (2, 6), (3, 7)]
        assert all(torch.equal(*pair) for pair in zip(gradients, others, strict=True))


def accumulate(comm, method):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2)).double()
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    if method == "one process":
        for half in x:
            model(half).pow(2).mean().backward()
    else:
        net = DDP(model, comm, bucket_bytes=64)
        for half in x:
            net(half.tensor_split(comm.size)[comm.rank]).pow(2).mean().backward()
    return [p.grad for p in model.parameters()]


def test_gradients_of_two_backward_passes_add_up():
    expected = dlviz.launch(accumulate, ranks=1, args=("one process",)).results[0]
    for found in dlviz.launch(accumulate, ranks=4, args=("ddp",)).results:
        for mine, theirs in zip(found, expected, strict=True):
            assert torch.allclose(mine, theirs, rtol=1e-12)


def half_precision(comm):
    model = nn.Linear(3, 2).to(torch.bfloat16)
    nn.init.constant_(model.weight, 0.5)
    net = DDP(model, comm)
    x = torch.full((300 + comm.rank, 3), float(comm.rank), dtype=torch.bfloat16)
    net(x).mean(0).sum().backward()
    return model.weight.grad


def test_half_precision_gradients_are_weighted_exactly():
    expected = (301 * 1 + 302 * 2) / (300 + 301 + 302)  # counts that bfloat16 cannot hold
    for grad in dlviz.launch(half_precision, ranks=3).results:
        assert grad.dtype == torch.bfloat16
        assert torch.allclose(grad.float(), torch.full((2, 3), expected), rtol=2**-8)


def lonely(comm):
    """Only rank 1's loss reaches the second layer."""
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]).double()

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = model

        def forward(self, x):
            x = self.layers[0](x)
            return self.layers[1](x) if comm.rank == 1 else x

    net = DDP(Both(), comm, bucket_bytes=1)
    net(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
    return [p.grad for p in model.parameters()]


def test_a_layer_that_only_one_rank_uses_hangs_no_rank():
    first, second = dlviz.launch(lonely, ranks=2, timeout=20).results
    for mine, theirs in zip(first, second, strict=True):
        assert torch.equal(mine, theirs)
    assert first[3].tolist() == [0.5, 0.5]


def test_a_model_that_fails_in_forward_says_so():
    def bad(comm):
        net = DDP(nn.Linear(2, 2), comm)
        net(torch.ones(1, 3))

    with pytest.raises(dlviz.RankError, match="shapes cannot be multiplied"):
        dlviz.launch(bad, ranks=2)


def test_evaluation_does_not_communicate():
    def worker(comm):
        net = DDP(nn.BatchNorm1d(3), comm)
        before = comm.process.groups.calls[comm.number]
        net.eval()(torch.ones(2, 3))
        return comm.process.groups.calls[comm.number] - before

    assert dlviz.launch(worker, ranks=2).results == [0, 0]


def test_unknown_all_reduce_and_method_are_refused():
    def bad(comm):
        DDP(nn.Linear(2, 2), comm, all_reduce="star")

    with pytest.raises(dlviz.RankError, match="all_reduce='star' is not known"):
        dlviz.launch(bad, ranks=1)
    with pytest.raises(dlviz.RankError, match="method='wrong' is unknown: use 'ddp' or 'naive'"):
        dlviz.launch(train, ranks=1, args=(nn.Linear(2, 2), []), kwargs={"method": "wrong"})


def test_the_former_name_of_method_is_accepted_with_a_warning():
    def worker(comm, old):
        with pytest.warns(DeprecationWarning, match="way= is called method= now"):
            return train(comm, nn.Linear(2, 2), [(torch.eye(2), torch.tensor([0, 1]))], way=old)

    naive = dlviz.launch(worker, ranks=2, args=("naive",))
    assert "counts" in naive.trace.only(kind="collective").spans.name.tolist()
    with pytest.raises(dlviz.RankError, match="method='wrong' is unknown"):
        dlviz.launch(worker, ranks=1, args=("wrong",))

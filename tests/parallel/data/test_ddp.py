"""DDP with unequal weights and accumulated gradients against one process of plain torch."""

import math

import pytest
import torch
from side_by_side import of_size, on_each_size
from torch import nn

import dlviz
from dlviz.parallel.data import DDP

LAYOUTS = [[7], [4, 3], [2, 1]]  # of seven ranks, the groups that train side by side
RANKS = [1, 2, 3, 4, 7]
PASSES = 3
PADDING = 0


class Reader(nn.Module):
    """Guesses each next token of rows (B, n+1) that end in padding; a long token uses a
    parameter that nothing else needs."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(8)

        def weights(*shape):
            return nn.Parameter(torch.randn(*shape, generator=generator, dtype=torch.float64))

        self.embed, self.mix, self.out = weights(9, 5), weights(5, 5), weights(5, 9)
        self.long, self.unused = weights(5), weights(2)

    def forward(self, rows):
        tokens = rows[:, :-1]
        hidden = self.embed[tokens]
        if (tokens == 8).any():
            hidden = hidden + (tokens == 8)[..., None] * self.long
        return torch.tanh(hidden @ self.mix) @ self.out  # (B, n, 9)


def targets(rows):
    return (rows[:, 1:] != PADDING).sum()


def mean_loss(net, rows):
    """The mean over the target tokens; NaN where there are none."""
    logits = net(rows).flatten(0, 1)
    return nn.functional.cross_entropy(logits, rows[:, 1:].flatten(), ignore_index=PADDING)


def text(seed, rows=15, length=6):
    """Rows of 1 to 6 tokens, the last three of 0 or 1: no target in them."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.randint(1, 9, (rows, length), generator=generator)
    lengths = torch.randint(1, length + 1, (rows,), generator=generator)
    lengths[-3:] = torch.tensor([1, 0, 1])
    return torch.where(torch.arange(length) < lengths[:, None], found, PADDING)


def shard(rows, comm):
    """Unequal shards: of 7 ranks the last but one has no row and the last has only padding."""
    sizes = [(3 * rank) % 5 for rank in range(comm.size)]
    sizes[-1] = 3 if comm.size > 1 else 0
    sizes[0] += len(rows) - sum(sizes)
    return rows.split(sizes)[comm.rank]


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters()}


def worker(comm):
    """The gradients of each case."""
    mine = [shard(text(seed), comm) for seed in range(PASSES)]

    def net():
        return DDP(Reader(), comm, bucket_bytes=300, weight=targets)

    found = {}
    one = net()
    mean_loss(one, mine[0]).backward()
    found["one pass"] = gradients(one.module)

    several = net()
    with comm.span("phase", "accumulation", step=comm.size):
        for rows in mine[:-1]:
            with several.no_sync():
                (mean_loss(several, rows) / PASSES).backward()
        (mean_loss(several, mine[-1]) / PASSES).backward()
    found["three passes"] = gradients(several.module)

    several.zero_grad()
    with several.no_sync():
        mean_loss(several, mine[1]).backward()
    several.zero_grad()
    mean_loss(several, mine[0]).backward()
    found["cleared between"] = gradients(several.module)

    several.zero_grad()
    with several.no_sync():
        mean_loss(several, mine[1]).backward()
    several.zero_grad(set_to_none=False)
    mean_loss(several, mine[0]).backward()
    found["zeroed between"] = gradients(several.module)

    more = net()
    mean_loss(more, mine[0]).backward()
    with more.no_sync():
        mean_loss(more, mine[1]).backward()
        mean_loss(more, mine[2]).backward()
    mean_loss(more, mine[0]).backward()
    found["after another"] = gradients(more.module)

    equal = net()
    mean_loss(equal, mine[0]).backward()
    mean_loss(equal, mine[0]).backward()
    found["twice, each averaged"] = gradients(equal.module)
    equal.zero_grad()
    with equal.no_sync():
        mean_loss(equal, mine[0]).backward()
    mean_loss(equal, mine[0]).backward()
    found["twice, averaged once"] = gradients(equal.module)
    return found


def oracle(*seeds, times=1.0):
    """Gradients of one process on all rows of `seeds` together, `times` them."""
    model = Reader()
    (times * mean_loss(model, torch.cat([text(seed) for seed in seeds]))).backward()
    return gradients(model)


def both(first, second):
    return {
        name: None if first[name] is None else first[name] + second[name].nan_to_num()
        for name in first
    }


def assert_equal(found, expected):
    for name, value in expected.items():
        if value is None:
            assert found[name] is None, name
        else:
            assert (found[name] - value).norm() <= 1e-12 * value.norm(), name


@pytest.fixture(scope="module")
def run():
    run = dlviz.launch(on_each_size, 7, args=(LAYOUTS, worker))
    run.trace.validate()
    return run


@pytest.mark.parametrize("ranks", RANKS)
def test_unequal_shards_and_accumulated_gradients_equal_one_process(run, ranks):
    whole = oracle(0)
    assert whole["unused"] is None and whole["long"].any()
    expected = {
        "one pass": whole,
        "three passes": oracle(0, 1, 2),
        "cleared between": whole,
        "zeroed between": whole,
        "after another": both(whole, oracle(1, 2, 0, times=3)),
        "twice, each averaged": oracle(0, times=2),
        "twice, averaged once": oracle(0, times=2),
    }
    results = of_size(run, ranks)
    assert len(results) == ranks
    for rank, found in results.items():
        for case, value in expected.items():
            assert_equal(found[case], value)
        spans = run.trace.only(rank=rank, step=ranks, kind="collective").spans
        buckets = [name for name in spans.name.tolist() if name and name.startswith("bucket")]
        assert buckets == [f"bucket {i}" for i in range(len(buckets))] and len(buckets) > 2


def test_the_averages_of_unequal_shards_are_not_the_mean():
    """Why weights are needed: without them the gradient differs."""

    def by_rows(comm):
        net = DDP(Reader(), comm)
        mean_loss(net, shard(text(0), comm)[:9]).backward()
        return gradients(net.module)["mix"]

    whole = oracle(0)["mix"]
    found = dlviz.launch(by_rows, 2).results[0]
    assert (found - whole).norm() > 0.01 * whole.norm()


def regularised(comm):
    net = DDP(Reader(), comm, weight=targets)
    for _ in range(2):
        loss = mean_loss(net, shard(text(0), comm))
        (loss + sum(p.square().sum() for p in net.module.parameters())).backward()
    return gradients(net.module)


def test_a_loss_of_the_parameters_themselves_counts_once():
    model = Reader()
    loss = mean_loss(model, text(0)) + sum(p.square().sum() for p in model.parameters())
    (2 * loss).backward()
    for found in dlviz.launch(regularised, 2).results:
        assert_equal(found, gradients(model))


@pytest.mark.parametrize(
    ("weight", "rows", "says"),
    [
        (lambda x: -1.0, 3, "the shard of rank 0 weighs -1: weight= has to give how many"),
        (lambda x: math.nan, 3, "the shard of rank 0 weighs nan"),
        (None, 0, "the batch weighs 0 on all ranks together, so there is no mean to learn from"),
    ],
)
def test_a_batch_that_cannot_be_weighed_is_refused(weight, rows, says):
    def bad(comm):
        options = {} if weight is None else {"weight": weight}
        net = DDP(nn.Linear(2, 2), comm, **options)
        net(torch.ones(rows, 2)).mean().backward()

    with pytest.raises(dlviz.RankError, match=says):
        dlviz.launch(bad, 1)

"""What goes wrong between a layer's gather and its free."""

import gc
import os
import signal

import pytest
import torch
from torch import nn

import dlviz
from dlviz import RankLost
from dlviz.parallel import zero

LAYER = 4 * 300 * 300  # bytes


def data(steps=3):
    x = torch.randn(steps, 6, 300, generator=torch.Generator().manual_seed(1))
    return [(each, each.argmax(1) % 3) for each in x]


class Dies(nn.Linear):
    """Rank 1 is killed in the second forward, while its layer is gathered."""

    rank, calls = 0, 0

    def forward(self, x):
        self.calls += 1
        if self.rank == 1 and self.calls == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


def held():
    """Bytes of tensors as large as a layer."""
    gc.collect()
    storages = {
        id(s): s.nbytes()
        for t in gc.get_objects()
        if type(t).__name__ in ("Tensor", "Parameter", "Freed") and t.dtype == torch.float32
        for s in [t.untyped_storage()]
    }
    return sum(nbytes for nbytes in storages.values() if nbytes >= LAYER)


def survives(comm, prefetch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(300, 300), Dies(300, 300), nn.Linear(300, 300))
    model[1].rank = comm.rank
    with pytest.raises(RankLost) as error:
        zero.train(comm, model, data(), stage=3, prefetch=prefetch)
    return str(error.value), held()


@pytest.mark.filterwarnings("ignore:rank . sent rank .:RuntimeWarning")  # they never take it
@pytest.mark.parametrize(("ranks", "prefetch"), [(2, 0), (2, 1), (3, 0), (3, 1), (5, 2)])
def test_the_others_say_who_died_between_gather_and_free_and_hold_no_layer(ranks, prefetch):
    run = dlviz.launch(survives, ranks, args=(prefetch,), may_lose=(1,), timeout=60)
    assert [*run.lost] == [1]
    for says, nbytes in filter(None, run.results):
        assert says == "rank 1 is lost: it was killed by signal 9."
        assert nbytes == 0


def test_a_run_of_several_ranks_says_who_died():
    with pytest.raises(dlviz.RankError, match="rank 1 was killed by SIGKILL"):
        dlviz.launch(survives, 3, args=(1,), timeout=60)


class Changes(nn.Linear):
    def forward(self, x):
        with torch.no_grad():
            self.weight.mul_(0.5)
        return super().forward(x)


def changed(comm, stage):
    said = []
    with pytest.raises(ValueError) as error:
        zero.train(comm, nn.Sequential(nn.Linear(300, 5), Changes(5, 3)), data(), stage=stage)
    said.append(str(error.value))
    model = nn.Sequential(nn.Linear(300, 3))

    def halve(step, loss, net):
        with torch.no_grad():
            net[0].bias.mul_(0.5)

    with pytest.raises(ValueError) as error:
        zero.train(comm, model, data(), stage=stage, callback=halve)
    said.append(str(error.value))
    return said


@pytest.mark.parametrize("stage", [1, 3])
def test_a_parameter_that_is_changed_while_its_layer_is_gathered_is_named(stage):
    for said in dlviz.launch(changed, 2, args=(stage,)).results:
        for words, name in zip(said, ("1.weight", "0.bias"), strict=True):
            assert words.startswith(f"{name} was changed outside the update")


def reads(comm):
    model = nn.Sequential(nn.Linear(300, 5), nn.Linear(5, 3))
    seen = []

    def look(step, loss, net):
        seen.append([p.shape for p in net.parameters() if p.isnan().all()])
        with torch.no_grad():
            seen.append(net(torch.ones(2, 300)).isfinite().all().item())

    state = zero.train(comm, model, data(1), stage=3, callback=look).state
    return seen, {name: value.shape for name, value in state.items()}


def test_freed_parameters_read_as_nan_and_a_forward_gathers_them():
    shapes = [(5, 300), (5,), (3, 5), (3,)]
    for rank, (seen, state) in enumerate(dlviz.launch(reads, 2).results):
        assert seen == [shapes, True]
        assert [*state.values()] == ([] if rank else shapes)

"""Parameters that several servers share, each with a slice of them."""

import pytest
import torch
from server_oracle import LR, Mixed, Server, batches, same_bits
from test_push_pull import lost_run
from torch import nn

import dlviz
from dlviz.parallel import STRATEGIES
from dlviz.parallel.server.server_slices import cut
from dlviz.parallel.step.sharded_step import Losses


@pytest.mark.parametrize("servers", [1, 2, 3, 75])
def test_slices_are_even_and_hold_every_value_once(servers):
    model = Mixed()
    model.inner.weight.data = model.inner.weight.data.t().contiguous().t()  # laid out by columns
    before = {name: value.clone() for name, value in model.state_dict().items()}
    slices = cut(model, servers)
    assert same_bits(model.state_dict(), before)
    pieces = [piece.detach().double().flatten() for part in slices for piece in part]
    values = [p.detach().double().flatten() for p in model.parameters()]
    assert torch.equal(torch.cat(pieces), torch.cat(values))  # 75 of them
    sizes = [sum(piece.numel() for piece in part) for part in slices]
    assert len(sizes) == servers and max(sizes) - min(sizes) <= 1
    model(batches(1)[0][0]).sum().backward()
    for part in slices:
        part.take_gradients()
        for piece in part:
            piece.data -= piece.grad
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name] - p.grad)
    model.zero_grad()
    slices[0].take_gradients()
    assert all(piece.grad is None for piece in slices[0])


def test_each_of_k_servers_receives_and_sends_a_kth_of_the_weights_for_each_worker():
    ranks, steps = 5, 2
    for servers in (1, 2, 3):
        model, workers = dlviz.models.MLP(), ranks - servers
        images = dlviz.datasets.batches(*dlviz.datasets.digits("train"), batch=64, steps=steps)
        args, kwargs = (model, [*images], "sgd"), {"servers": servers}
        run = dlviz.launch(STRATEGIES["sync_server"], ranks, args=args, kwargs=kwargs)
        run.trace.validate()
        messages, whole = run.trace.messages, sum(p.nbytes for p in model.parameters())
        for server in range(servers):
            for mine, other in ((messages.dst, messages.src), (messages.src, messages.dst)):
                for worker in range(servers, ranks):
                    nbytes = messages.nbytes[(mine == server) & (other == worker)]
                    assert len(nbytes) == steps
                    tail = nbytes - whole / servers  # a flag for each piece, and a number
                    assert (tail >= 0).all() and (
                        tail <= 4 * (len([*model.parameters()]) + 3)
                    ).all()
        assert len(messages) == 2 * steps * servers * workers
        updates = run.trace.only(kind="update").spans
        assert sorted(updates.rank.tolist()) == sorted([*range(servers)] * steps)


def test_several_servers_go_on_without_a_lost_worker():
    data = batches(4)
    options = {"rule": "momentum", "servers": 2}
    _, result = lost_run("sync_server", data, {2: "at the start"}, workers=3, **options)
    assert result["missing"] == 4
    server = Server([0])
    for batch in data:  # rank 2 is the first of two workers
        inputs, labels = (part.tensor_split(2)[1] for part in batch)
        server.apply(server.gradient(0, inputs, labels))
        server.pull(0)
    state = server.model.state_dict()
    assert all(torch.allclose(result["state"][name], state[name], atol=1e-6) for name in state)
    # It has pushed to one of them and not to the other.
    for messages in (1, 2, 3):
        points = {2: f"after {messages} message" + "s" * (messages > 1)}
        _, result = lost_run("sync_server", data, points, workers=3, **options)
        assert result["missing"] == (3 if messages == 3 else 4)


def test_a_server_that_shares_the_weights_is_needed_to_the_end():
    def die(comm, late):
        def gone(*args):
            raise KeyError("gone")

        if comm.rank == 1:
            Losses.means = gone if late else Losses.means
            late or gone()
        return STRATEGIES["sync_server"](comm, Mixed(), batches(2), "sgd", lr=LR, servers=2)

    for late in (False, True):
        with pytest.raises(dlviz.RankError, match="RankLost: rank 1 is lost: it raised KeyError"):
            dlviz.launch(die, 4, args=(late,), may_lose=(1,), timeout=60)


class Two(nn.Module):
    """Two parameters."""

    def __init__(self):
        super().__init__()
        self.only = nn.Linear(1, 1)

    def forward(self, x):
        return self.only(x)


def test_too_many_servers_are_refused_before_training():
    def refused(comm):
        data = [(torch.ones(4, 1), torch.zeros(4, dtype=torch.int64))]
        found = []
        for options in (
            *({"servers": servers} for servers in (0, -1, 5, 6, 1.5, "2", None, 3)),
            {"servers": 2, "backups": 1},
            {"servers": 3, "backups": 2},
        ):
            with pytest.raises(ValueError) as error:
                STRATEGIES["sync_server"](comm, Two(), data, "sgd", **options)
            found.append(str(error.value))
        return found

    *wrong, more, both, none = dlviz.launch(refused, 5).results[4]
    for servers, said in zip((0, -1, 5, 6, 1.5, "2", None), wrong, strict=True):
        wanted = f"servers={servers!r} of 5 ranks leave no worker, or no server: use 1 to 4."
        assert said == wanted
    assert more == (
        "servers=3 cannot share a model of 2 parameters: each needs one to serve. Use 2 or fewer."
    )
    assert both.startswith("backups=1 with servers=2: ") and "Use backups=0 or servers=1" in both
    assert none.startswith("backups=2 of 2 workers cannot be left out")

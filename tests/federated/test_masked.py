"""Training whose server gets sums alone: what it comes to, what it says, who may be lost."""

import os
import signal
import time

import federated_oracle as oracle
import pytest
import torch
from federated_oracle import THETA, dealt, model

import dlviz
from dlviz.federated import Arrivals, Secure, train
from dlviz.federated.local import LocalTraining
from dlviz.federated.masked_rounds import BEYOND
from dlviz.federated.messages import UPDATE
from dlviz.federated.secure.fixed_point import FixedPoint
from dlviz.federated.secure.messages import EXCHANGES
from dlviz.federated.secure.terms import Terms
from dlviz.federated.selection import Selection

CLIP = 64.0
HOW = {"batch": 16, "epochs": 2}


def fixed_mean(net, clients, number, who, ready):
    """The mean update of these clients in the fixed point of so many, added up in the open."""
    how = LocalTraining(HOW["epochs"], HOW["batch"], 0.1, torch.nn.functional.cross_entropy, 0, 0)
    code, total = FixedPoint(ready, CLIP, 32), 0
    for k in who:
        size = len(clients[k][1])
        batches = [how.order(number, k, epoch, size).split(16) for epoch in range(2)]
        end = oracle.local(net, clients[k], 0.1, batches)
        change = [p - w for p, w in zip(end.parameters(), net.parameters(), strict=True)]
        row = torch.cat([each.flatten() for each in change])
        total = total + code.encode(torch.cat([size * row, row.new_tensor([size])])).astype(int)
    found = code.decode(total % 2**32)
    return found[:-1] / found[-1]


def expected_state(clients, summed):
    """The state after rounds of which these clients' updates are in the sums: `summed` has them by
    round, and how many were ready."""
    net = model()
    with torch.no_grad():
        for number, (who, ready) in summed.items():
            with torch.enable_grad():
                mean = fixed_mean(net, clients, number, who, ready)
            for p, change in zip(
                net.parameters(), mean.split([p.numel() for p in net.parameters()]), strict=True
            ):
                p += change.view_as(p)
    return net.state_dict()


def bytes_of(n, threshold):
    """A round's, of n clients that all stay."""
    text = len(str(Terms((THETA + 1,), "float64", n, threshold, CLIP, 32)))
    sum_of = 4 * (THETA + 1) + 179 * n + 148 + text + 216 * n + 84
    return n * (8 * THETA + sum_of)


def test_a_round_is_the_plain_one_in_fixed_point_and_the_server_gets_no_update():
    """To the last bit, with a client that is not asked and one that has no data."""
    clients = dealt(4)
    clients.append((clients[0][0][:0], clients[0][1][:0]))

    def worker(comm):
        options = {**HOW, "rounds": 4, "selection": "round_robin", "fraction": 0.8}
        return train(comm, model(), clients, secure=Secure(3, CLIP), **options)

    run = dlviz.launch(worker, 6)
    run.trace.validate()
    records = run.results[0]["rounds"]
    assert [each.selected for each in records] == [
        [0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 3, 4], [0, 2, 3, 4],
    ]  # fmt: skip
    who = [[k for k in each.selected if k != 4] for each in records]
    assert [each.answered for each in records] == who
    assert not any(each.unchanged or each.late or each.lost for each in records)
    assert [4 in each.rejected for each in records] == [False, True, True, True]
    assert [each.nbytes for each in records] == [bytes_of(len(each), 3) for each in who]
    state = run.results[0]["state"]
    expected = expected_state(clients, {i: (each, len(each)) for i, each in enumerate(who)})
    assert all(torch.equal(state[name], expected[name]) for name in expected)
    table, spans = run.trace.messages, run.trace.spans
    assert not (table.tag == UPDATE).any(), "no update was sent"
    for rank in range(5):
        of = spans[(spans.rank == rank) & (spans.kind == "phase")]
        times = sum(rank in (0, *(k + 1 for k in each)) for each in who)
        assert [(of.name == name).sum() for name in EXCHANGES] == [times] * 4


def killed(comm, clients, victims, **options):
    """Training in whose round i rank `victims[i]` is killed, at the begin of the i-th of these."""
    begins = [*reversed(EXCHANGES), "3 local training"]
    span, at = comm.span, [0]

    def begin(kind, name=None, **fields):
        at[0] = fields.get("step", at[0])
        if (name, comm.rank) in zip(begins[at[0] :][:1], victims[at[0] :], strict=False):
            os.kill(os.getpid(), signal.SIGKILL)
        return span(kind, name, **fields)

    comm.span = begin
    return train(comm, model(), clients, **HOW, **options)


def test_a_client_that_is_killed_in_an_exchange_is_named_and_training_goes_on():
    """One in the last exchange of round 0, one in the one before it of round 1, and so on."""
    clients, victims = dealt(7), [7, 6, 5, 4, 3]
    options = {"rounds": 6, "secure": Secure(4, CLIP)}
    run = dlviz.launch(
        killed, 8, args=(clients, victims), kwargs=options, may_lose=(*victims,), timeout=60
    )
    assert {*run.lost} == {*victims}
    records = run.results[0]["rounds"]
    assert [each.lost for each in records] == [[6], [5], [4], [3], [2], []]
    summed = [[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4], [0, 1, 2, 3]]
    assert [each.answered for each in records] == [*summed, [0, 1, 2], [0, 1], [0, 1]]
    few = "2 of the clients were ready, and 4 have to be"
    assert [each.unchanged for each in records] == ["", "", "", AFTER_KEYS, few, few]
    ready = [7, 6, 5]
    state = expected_state(clients, dict(enumerate(zip(summed, ready, strict=True))))
    assert oracle.gap(run.results[0]["state"], state) == 0


AFTER_KEYS = (
    "3 of 4 clients are left after the exchange of keys, and threshold=4 have to be: no vector and "
    "no sum is known. Dropped out: client 3."
)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_clients_of_one_rank_are_summed_as_if_each_had_one_and_a_model_says_who_is_late(ranks):
    """Client 3's answer to round 0 comes in round 1, after 2 s of model time; nobody asks it while
    it is busy."""
    clients = dealt(5)
    arrivals = Arrivals(1.0, factors=[0.5, 0.4, 0.3, 1.1, 0.2])
    options = {**HOW, "rounds": 3, "secure": Secure(None, CLIP)}
    timed = {**options, "arrivals": arrivals, "deadline": 1.5}

    def worker(comm):
        return [train(comm, model(), clients, **how) for how in (options, timed)]

    run = dlviz.launch(worker, ranks, timeout=60)
    run.trace.validate()
    plain, modelled = run.results[0]
    everybody = [0, 1, 2, 3, 4]
    assert [each.answered for each in plain["rounds"]] == [everybody] * 3
    assert [each.nbytes for each in plain["rounds"]] == [bytes_of(5, 3)] * 3
    expected = expected_state(clients, dict.fromkeys(range(3), (everybody, 5)))
    assert oracle.gap(plain["state"], expected) == 0
    rounds = modelled["rounds"]
    assert [each.late for each in rounds] == [[3], [3], [3]]
    assert [each.dropped for each in rounds] == [[], [3], [3]]
    assert [each.seconds for each in rounds] == [1.5, 1.5, 1.5]
    assert all(each.modelled and each.answered == [0, 1, 2, 4] for each in rounds)
    expected = expected_state(clients, dict.fromkeys(range(3), ([0, 1, 2, 4], 4)))
    assert oracle.gap(modelled["state"], expected) == 0
    assert not (run.trace.messages.tag == UPDATE).any(), "no update was sent"


def test_a_rank_that_is_lost_takes_its_clients_along():
    """Ranks 1 to 3 have clients 0 and 3, 1 and 4, 2 and 5. Rank 3 dies in the last exchange of
    round 0, rank 2 in the one before it of round 1."""
    clients, options = dealt(6), {"rounds": 3, "secure": Secure(None, CLIP)}
    run = dlviz.launch(
        killed, 4, args=(clients, [3, 2]), kwargs=options, may_lose=(2, 3), timeout=60
    )
    rounds = run.results[0]["rounds"]
    assert [each.lost for each in rounds] == [[2, 5], [1, 4], []]
    assert [each.answered for each in rounds] == [[0, 1, 2, 3, 4, 5], [0, 3], [0, 3]]
    assert [bool(each.unchanged) for each in rounds] == [False, True, False]
    assert "2 of 4 clients are left" in rounds[1].unchanged
    summed = {0: (rounds[0].answered, 6), 2: ([0, 3], 2)}
    assert oracle.gap(run.results[0]["state"], expected_state(clients, summed)) == 0


def test_a_round_to_which_one_client_comes_is_not_summed():
    options = {**HOW, "rounds": 12, "selection": "poisson", "fraction": 0.3}

    def worker(comm):
        return train(comm, model(), dealt(4), secure=Secure(None, CLIP), **options)

    rounds = dlviz.launch(worker, 2, timeout=60).results[0]["rounds"]
    came = [len(each.answered) for each in rounds]
    assert {0, 1, 2} <= {*came}
    few = "{} of the clients were ready, and 2 have to be"
    assert [each.unchanged for each in rounds] == [
        few.format(many) if many < 2 else "" for many in came
    ]


LONG = 1.5  # s, a deadline that a client keeps to


@pytest.mark.filterwarnings(
    "ignore:rank . sent rank .:RuntimeWarning"
)  # the one that came too late
def test_a_client_without_finite_numbers_ends_a_round_and_a_late_one_is_done_without(tmp_path):
    """Client 1 in round 0; client 2 is late with round 1, client 3 with its shares in round 2."""

    def outgoing(update, client, number):
        while (client, number) == (2, 1) and not (tmp_path / "1").exists():
            time.sleep(0.01)
        return update / 0 if (client, number) == (1, 0) else update

    def worker(comm):
        span, at = comm.span, [0]

        def begin(kind, name=None, **fields):
            at[0] = fields.get("step", at[0])
            while (comm.rank, *at, name) == (4, 2, "shares") and not (tmp_path / "2").exists():
                time.sleep(0.01)
            return span(kind, name, **fields)

        def evaluate(net):
            """A round is over."""
            path = tmp_path / str(len(list(tmp_path.iterdir())))
            path.touch()
            return float(path.name)

        comm.span = begin
        options = {"rounds": 4, "deadline": LONG, "outgoing": outgoing, "evaluate": evaluate}
        return train(comm, model(), dealt(4), secure=Secure(3, CLIP), **HOW, **options)

    run = dlviz.launch(worker, 5, may_lose=(1, 2, 3, 4), timeout=60)
    assert not run.lost
    nan, late, hung, last = run.results[0]["rounds"]
    assert nan.unchanged.startswith("client 1 ends the round: client 1's vector is ")
    assert (late.late, late.answered, late.unchanged) == ([2], [0, 1, 3], "")
    assert (hung.late, hung.answered, hung.unchanged) == ([3], [0, 1, 2], "")
    assert (hung.dropped, last.answered, last.late) == ([2], [0, 1, 2, 3], [])
    assert min(late.seconds, hung.seconds) >= LONG
    summed = {1: (late.answered, 3), 2: (hung.answered, 4), 3: (last.answered, 4)}
    assert oracle.gap(run.results[0]["state"], expected_state(dealt(4), summed)) == 0


@pytest.mark.parametrize(
    ("secure", "clients", "select", "given", "message"),
    [
        (Secure(3, CLIP), 5, {}, {"deadline": 1.0}, "deadline= with secure= and 5 clients on 5 ra"),
        (
            Secure(3, CLIP),
            5,
            {"spare": 1, "fraction": 0.6},
            {},
            "spare= with secure= .* use 6 rank",
        ),
        (Secure(3, CLIP), 4, {}, {"combine": True}, "combine= asks for more of a client than"),
        (Secure(3, CLIP), 4, {}, {"late_weight": 0.5}, "late_weight= asks for more"),
        (Secure(3, CLIP), 4, {"rule": "size"}, {}, "selection= asks for more"),
        (Secure(3, CLIP), 4, {"fraction": 0.3}, {}, "a secure sum of 1 client hides nothing"),
        (Secure(2, CLIP), 4, {}, {}, "threshold=2 of 4 clients: with half of them the server"),
        (Secure(2, CLIP), 4, {"fraction": 0.5, "spare": 2}, {}, "threshold=2 of 4 clients"),
        (Secure(3, 1e6), 4, {}, {}, r"4 clients with values up to clip=1e\+06 add up to 4e\+06"),
    ],
)
def test_what_a_sum_cannot_give_is_refused(secure, clients, select, given, message):
    how = {"rule": "uniform", "fraction": 1.0, "spare": 0, "available": None, "seed": 0} | select
    asked = [given.get(name) for name in BEYOND]
    with pytest.raises(ValueError, match=message):
        secure.check(
            torch.zeros(3), 5, clients, Selection(**how), asked, given.get("deadline"), None
        )


def test_it_is_refused_on_every_rank_before_the_run():
    def worker(comm):
        found = []
        for more in ({"fp16": True}, {"late_weight": 0.5}, {"combine": torch.mul}):
            with pytest.raises(ValueError) as caught:
                train(comm, model(), dealt(2), rounds=1, secure=Secure(2, CLIP), **more)
            found.append(str(caught.value).split("=")[0])
        return found

    assert dlviz.launch(worker, 3).results == [["fp16", "late_weight", "combine"]] * 3
    options = {"rounds": 1, "secure": Secure(2, 20.0)}
    with pytest.raises(dlviz.RankError, match="client . weighs .*, and clip=20 bounds how"):
        dlviz.launch(train, 3, args=(model(), dealt(2)), kwargs=options)

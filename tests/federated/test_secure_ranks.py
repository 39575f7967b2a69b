"""Secure sums of real ranks: what they return, send, record and survive."""

from __future__ import annotations

import itertools
import os
import signal
import time
from functools import partial

import out_of_time
import pytest
import torch
from secure_oracle import plain_sum
from timing import attempts

from dlviz import RankError, launch
from dlviz.federated.secure import RoundAborted, aggregate, secure_sum
from dlviz.federated.secure.client import client
from dlviz.federated.secure.masks import KEY, private_key, public_of
from dlviz.federated.secure.messages import (
    EXCHANGES,
    KEYS,
    MASKED,
    SERVER,
    SHARES,
    UNMASKING,
)
from dlviz.federated.secure.terms import Terms
from dlviz.machine import Link, classroom


def attempt(call, *args, **options):
    """What it returns, or the name and text of what it raises."""
    try:
        return call(*args, **options)
    except (ValueError, RoundAborted) as error:
        return f"{type(error).__name__}: {error}"


SHAPE, CLIENTS = (5, 8), 4
DEADLINE = 0.5  # s
BITS = (32, 48)


def own_vector(rank, dtype=torch.float32):
    return torch.arange(40, dtype=dtype).view(SHAPE) / 40 * (-1) ** rank + rank / 8


def sums(comm):
    """Several rounds in one run; and what the server has received, what the clients have drawn."""
    seen, recv = [], comm.recv

    def draw(count):
        seen.append(os.urandom(count))
        return seen[-1]

    def recorded(tensor, src, tag):
        recv(tensor, src, tag)
        seen.append(tensor.numpy().tobytes())

    if comm.rank == SERVER:
        comm.recv = recorded
    else:
        aggregate.client = partial(client, draw=draw)
    found = []
    pair = comm.split(int(comm.rank > 1))

    def step(vector, threshold=3, over=comm, **options):
        options = {"clip": 1.0, **options}
        with comm.span("phase", "round", step=len(found)):
            found.append(attempt(secure_sum, over, vector, threshold=threshold, **options))

    for bits in BITS:
        step(own_vector(comm.rank), bits=bits)
    weight = torch.tensor([10.0 * comm.rank])
    step(torch.cat([weight * own_vector(comm.rank).flatten(), weight]), clip=64.0)
    bad = own_vector(comm.rank)
    bad[1, 3] = float("nan") if comm.rank == 2 else 0
    step(bad)
    step(own_vector(comm.rank)[: 4 if comm.rank == 3 else 5])
    step(own_vector(comm.rank, torch.float64 if comm.rank == 1 else torch.float32))
    step(own_vector(comm.rank), threshold=2)
    step(own_vector(comm.rank), clip=1e9)
    if comm.rank < 2:
        step(own_vector(comm.rank), over=pair)
    else:
        found.append(None)
    step(own_vector(comm.rank), threshold=4)
    return found, seen


@pytest.fixture(scope="module")
def run():
    return launch(sums, CLIENTS + 1)


def expected_sum(weights=(1,) * CLIENTS, clip=1.0, bits=32, vector=own_vector):
    vectors = [w * vector(i).double() for i, w in enumerate(weights, 1)]
    terms = Terms((vectors[0].numel(),), "", len(weights), 3, clip, bits)
    residues = plain_sum(terms, [each.flatten() for each in vectors])
    return terms.code.decode(residues.astype(terms.code.word)).float()


def test_rank_0_has_the_sum_of_the_others_to_the_last_bit(run):
    (first, *_), *others = ([*found] for found, _ in run.results)
    sums = run.results[0][0]
    for each, bits in zip(sums, BITS, strict=False):
        assert each.dtype == torch.float32 and each.shape == SHAPE
        assert torch.equal(each, expected_sum(bits=bits).view(SHAPE))
    plain = sum(own_vector(i).clamp(-1, 1) for i in range(1, CLIENTS + 1))
    torch.testing.assert_close(first, plain, atol=1e-6, rtol=0)
    assert torch.equal(sums[-1], first), "a round goes as well after rounds that ended"
    assert all(each[0] is None for each in others)


def test_a_weight_rides_in_the_masked_vector_and_gives_the_weighted_mean(run):
    *values, weight = run.results[0][0][2].tolist()
    assert weight == 10 + 20 + 30 + 40
    clipped = [(10 * i * own_vector(i)).clamp(-64, 64) for i in range(1, CLIENTS + 1)]
    expected = (sum(clipped) / weight).flatten()
    torch.testing.assert_close(torch.tensor(values) / weight, expected, atol=1e-6, rtol=0)


def test_a_round_that_ends_says_why_on_every_rank_and_the_ranks_go_on(run):
    why = (
        (3, "RoundAborted: client 2 ends the round: client 2's vector is nan in element 11"),
        (4, "RoundAborted: client 3 came with shape (4, 8), float32, threshold 3, clip 1.0, bits "
            "32, the server with shape (5, 8), float32"),
        (5, "RoundAborted: client 1 came with shape (5, 8), float64, "),
        (6, "ValueError: threshold=2 of 4 clients"),
        (7, "ValueError: 4 clients with values up to clip=1e+09"),
    )  # fmt: skip
    for (found, _), (number, message) in itertools.product(run.results, why):
        assert found[number].startswith(message), found[number]
    for found, _ in run.results[:2]:
        assert found[8].startswith("ValueError: a secure sum of 1 client hides nothing")


def test_the_server_has_received_no_clients_key(run):
    received = b"".join(run.results[SERVER][1])
    drawn = [secret for _, secrets in run.results[1:] for secret in secrets]
    assert len({*drawn}) == len(drawn) == sum(len(found[1]) for found in run.results[1:])
    assert len(drawn) >= 4 * CLIENTS * 3, "three secrets of each client in each round, all new"
    for secret in drawn:
        assert len(secret) == KEY and secret not in received
    assert public_of(private_key(drawn[0])) in received, (
        "what the server would have been seen to have"
    )


def test_bytes_and_exchanges_are_as_claimed(run):
    messages = run.trace.messages
    for step, (bits, count) in enumerate([(32, 40), (48, 40), (32, 41)]):
        clip, shape = (64.0, (41,)) if count == 41 else (1.0, SHAPE)
        text = len(str(Terms(shape, "float32", CLIENTS, 3, clip, bits)))
        sent = count * (4 if bits <= 32 else 8) + 179 * CLIENTS + 148 + text
        got = 216 * CLIENTS + 84
        assert 45 < text < 65
        of_step = messages.step == step
        for rank in range(1, CLIENTS + 1):
            up, down = of_step & (messages.src == rank), of_step & (messages.dst == rank)
            assert (messages.nbytes[up].sum(), up.sum()) == (sent, len(EXCHANGES))
            assert (messages.nbytes[down].sum(), down.sum()) == (got, len(EXCHANGES))
        assert of_step.sum() == 2 * CLIENTS * len(EXCHANGES), (
            "clients exchange only with the server"
        )


def test_every_rank_records_the_four_exchanges_of_a_round(run):
    spans = run.trace.only(kind="phase").spans
    for rank in range(CLIENTS + 1):
        mine = (spans.rank == rank) & (spans.step == 0)
        names = [name for name, chosen in zip(spans.name, mine, strict=True) if chosen]
        assert sorted(names) == sorted(["round", *EXCHANGES])


def test_a_paced_run_has_the_same_sum():
    def worker(comm):
        return secure_sum(comm, own_vector(comm.rank), threshold=2, clip=1.0)

    found = launch(worker, 3, machine=classroom(3)).results
    assert torch.equal(found[0], expected_sum((1, 1)).view(SHAPE)) and found[1:] == [None, None]


LAST_WORDS = {7: UNMASKING, 6: MASKED, 5: SHARES, 4: KEYS}  # of rank 7 in round 0, 6 in round 1


def ending(comm, end, **options):
    """Rounds in each of which one more client ends, before it sends its message of an exchange:
    until too few are left."""
    found = []
    for victim, exchange in LAST_WORDS.items():
        sent, isend = [], comm.isend

        def send_or_end(tensor, dst, tag, victim=victim, exchange=exchange, sent=sent, send=isend):
            if comm.rank == victim and len(sent) == exchange:
                end(victim)
            sent.append(dst)
            return send(tensor, dst, tag)

        comm.isend = send_or_end
        vector = torch.full((2000,), comm.rank / 16, dtype=torch.float64)
        total = attempt(secure_sum, comm, vector, threshold=4, clip=1.0, **options)
        found.append(total if total is None or isinstance(total, str) else total.unique().tolist())
        comm.isend = isend
    return found


def check_ended(run):
    """The sums are of those whose vector came; the end says who was lost."""
    assert {*run.lost} == {*LAST_WORDS}
    why = "RoundAborted: 3 of 7 clients are left after the exchange of keys, and threshold=4"
    *sums, last = run.results[0]
    assert sums == [[28 / 16], [15 / 16], [10 / 16]] and last.startswith(why)
    assert last.endswith("Dropped out: client 4, client 5, client 6, client 7.")
    for rank in (1, 2, 3):
        assert run.results[rank][:3] == [None] * 3 and run.results[rank][3].startswith(why)


def test_a_client_may_be_killed_or_raise_in_any_exchange():
    def end(rank):
        if rank % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        raise KeyError("battery")

    run = launch(ending, 8, args=(end,), may_lose=tuple(LAST_WORDS), timeout=60)
    check_ended(run)


@pytest.mark.filterwarnings("ignore:rank . sent rank .:RuntimeWarning")  # they never take it
def test_a_client_may_hang_in_any_exchange_until_its_deadline(tmp_path, monkeypatch):
    def worker(comm):
        def end(rank):
            while True:
                time.sleep(1)

        found = ending(comm, end, deadline=DEADLINE)
        if comm.rank == SERVER:
            (tmp_path / "through").touch()
        return found

    until_late = {  # a client that was in the exchange; else it lasts no longer than it takes
        "keys": [False, True, True, True],
        "shares": [False, False, True],
        "masked vectors": [False, True, False],
        "unmasking": [True, False, False],
    }
    for attempt in attempts():  # other clients may be late too
        (tmp_path / "through").unlink(missing_ok=True)
        out_of_time.when(monkeypatch, (tmp_path / "through").exists)
        run = launch(worker, 8, may_lose=tuple(LAST_WORDS))
        assert all(each.how.startswith("was still at work when") for each in run.lost.values())
        spans = run.trace.only(rank=SERVER, kind="phase").spans
        took = {name: spans.wall_end[spans.name == name] - spans.wall_start[spans.name == name]
                for name in EXCHANGES}  # fmt: skip
        with attempt:
            check_ended(run)
            assert {name: (each >= DEADLINE).tolist() for name, each in took.items()} == until_late


@pytest.mark.filterwarnings("ignore:rank . sent rank .:RuntimeWarning")  # it comes too late
def test_a_late_client_gets_a_refusal_and_takes_part_in_the_next_round(tmp_path):
    def worker(comm):
        span, found = comm.span, []

        def begin(kind, name=None, **fields):
            while (comm.rank, name) == (2, "shares") and not (tmp_path / "over").exists():
                time.sleep(0.01)
            return span(kind, name, **fields)

        comm.span = begin
        for _ in range(2):
            more = {"threshold": 2, "clip": 1.0, "deadline": DEADLINE}
            found.append(attempt(secure_sum, comm, own_vector(comm.rank), **more))
            (tmp_path / "over").touch()
        found.append(attempt(secure_sum, comm, own_vector(0), threshold=2, clip=1.0, deadline=0))
        return found

    server, one, two, three = launch(worker, 4).results
    pair = sum(own_vector(rank).clamp(-1, 1) for rank in (1, 3))
    torch.testing.assert_close(server[0], pair, atol=1e-6, rtol=0)
    assert torch.equal(server[1], expected_sum((1, 1, 1)).view(SHAPE))
    assert one[:2] == three[:2] == [None, None]
    assert two[:2] == [
        "RoundAborted: client 2 was late in the exchange of shares: the round went on without it.",
        None,
    ]
    assert all(each[2].startswith("ValueError: deadline=0 lets nobody") for each in (server, two))


@pytest.mark.filterwarnings("ignore:rank . sent rank .:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine
def test_on_a_paced_run_the_devices_clock_says_who_is_late():
    """A message of client 3 takes 80 ms, and an exchange lasts 30."""
    links = [Link(0.5e-3, 1e9)] * 3 + [Link(80e-3, 1e9)]

    def worker(comm):
        comm.barrier()  # all begin at one moment
        options = {"threshold": 2, "clip": 1.0, "deadline": 0.03}
        return attempt(secure_sum, comm, own_vector(comm.rank), **options)

    run = launch(worker, 4, machine=classroom(4, link=links))
    pair = sum(own_vector(rank).clamp(-1, 1) for rank in (1, 2))
    torch.testing.assert_close(run.results[0], pair, atol=1e-6, rtol=0)
    assert run.results[1:3] == [None, None]
    assert run.results[3].startswith("RoundAborted: client 3 was late in the exchange of keys")
    spans = run.trace.only(rank=SERVER, kind="phase").spans
    assert (spans.end - spans.start)[spans.name == "keys"].tolist() == pytest.approx([0.03])


def test_where_the_server_dies_in_an_exchange_the_run_ends_and_names_it():
    def worker(comm):
        span = comm.span

        def begin(kind, name=None, **fields):
            if (comm.rank, name) == (SERVER, "masked vectors"):
                os.kill(os.getpid(), signal.SIGKILL)
            return span(kind, name, **fields)

        comm.span = begin
        return secure_sum(comm, own_vector(comm.rank), threshold=2, clip=1.0)

    with pytest.raises(RankError, match="^rank 0 was killed by SIGKILL"):
        launch(worker, 3, may_lose=(1, 2), timeout=30)

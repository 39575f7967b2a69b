"""Secure sums of real ranks: what they return, send, record and survive."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from functools import partial

import cloudpickle
import pytest
import secure_oracle
import torch
from secure_oracle import plain_sum

from dlviz import launch
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
from dlviz.machine import classroom

for module in (sys.modules[__name__], secure_oracle):
    cloudpickle.register_pickle_by_value(module)  # ranks need not import them


def attempt(call, *args, **options):
    """What it returns, or the name and text of what it raises."""
    try:
        return call(*args, **options)
    except (ValueError, RoundAborted) as error:
        return f"{type(error).__name__}: {error}"


SHAPE, CLIENTS = (5, 8), 4
BITS = (32, 48)


def own_vector(rank, dtype=torch.float32):
    return torch.arange(40, dtype=dtype).view(SHAPE) / 40 * (-1) ** rank + rank / 8


def sums(comm):
    """Several rounds in one run; and what the server has received, what the clients have drawn."""
    seen, recv = [], comm.recv

    def draw(count):
        seen.append(os.urandom(count))
        return seen[-1]

    def recorded(tensor, src):
        recv(tensor, src)
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
        assert of_step.sum() == 2 * CLIENTS * len(EXCHANGES), "clients meet the server alone"


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


def test_a_client_may_be_killed_in_any_exchange_and_the_sum_is_of_those_whose_vector_came():
    """In each round one more, before it sends its message: until too few are left."""
    n, k = 7, 4
    last_words = {7: UNMASKING, 6: MASKED, 5: SHARES, 4: KEYS}  # in this order

    def worker(comm):
        found = []
        for victim, exchange in last_words.items():
            sent, send = [], comm.send

            def send_or_die(tensor, dst, victim=victim, exchange=exchange, sent=sent, send=send):
                if comm.rank == victim and len(sent) == exchange:
                    os.kill(os.getpid(), signal.SIGKILL)
                sent.append(dst)
                send(tensor, dst)

            comm.send = send_or_die
            vector = torch.full((2000,), comm.rank / 16, dtype=torch.float64)
            total = attempt(secure_sum, comm, vector, threshold=k, clip=1.0)
            found.append(
                total if total is None or isinstance(total, str) else total.unique().tolist()
            )
            comm.send = send
        return found

    run = launch(worker, n + 1, may_lose=tuple(last_words), timeout=60)
    assert {*run.lost} == {*last_words}
    why = f"RoundAborted: 3 of {n} clients are left after the exchange of keys, and threshold={k}"
    *sums, last = run.results[0]
    assert sums == [[28 / 16], [15 / 16], [10 / 16]] and last.startswith(why)
    for rank in (1, 2, 3):
        assert run.results[rank][:3] == [None] * 3 and run.results[rank][3].startswith(why)

"""The server of a round: a coroutine that yields its answers, and gets the messages that arrived.

It knows no ranks: a client that is missing from an exchange has dropped out. An invalid message
ends the round with a ValueError that names its client.

Source: Bonawitz et al., CCS 2017, Figure 4, "Server".
"""

from __future__ import annotations

from collections.abc import Collection, Generator

import numpy as np

from dlviz.federated.secure.masks import KEY, agree, pair_mask, private_key, public_of, stream
from dlviz.federated.secure.messages import (
    CLIENT,
    DEALT,
    EXCHANGES,
    KEYS,
    MASK_KEY,
    MASKED,
    NO_ROUND,
    RELAYED,
    REVEALED,
    SECRETS,
    SELF_MASK,
    SERVER,
    SHARES,
    UNMASKING,
    Public,
    digest,
    pack,
    read_roster,
    records,
    round_of,
    unpack,
)
from dlviz.federated.secure.shares import Share, recover
from dlviz.federated.secure.terms import Terms

Messages = dict[int, bytes]  # by client
Dealt = dict[int, dict[int, bytes]]  # by dealer and holder


def server(terms: Terms) -> Generator[tuple[Messages, np.ndarray | None], Messages, None]:
    """Yields the answer to each client and, in the end, the sum of the residues."""
    came = yield {}, None

    # 1. Everybody's keys, for everybody.
    keys = {each: read_keys(message, each, terms) for each, message in came.items()}
    terms.enough(keys, EXCHANGES[KEYS])
    listed = b"".join(CLIENT.pack(each) + both for each, both in keys.items())
    roster, round_id = read_roster(listed, terms.clients), round_of(listed)
    came = yield {each: pack(KEYS, SERVER, each, NO_ROUND, listed) for each in keys}, None

    # 2. For each client the sealed shares that all have dealt it.
    dealt = {each: read_dealt(message, each, roster, round_id) for each, message in came.items()}
    terms.enough(dealt, EXCHANGES[SHARES])
    answers = {}
    for holder in dealt:
        relayed = b"".join(RELAYED.pack(dealer, dealt[dealer][holder]) for dealer in dealt)
        answers[holder] = pack(SHARES, SERVER, holder, round_id, relayed)
    came = yield answers, None

    # 3. The masked vectors, and the list of whose have arrived.
    total, word = np.zeros(terms.count, terms.code.word), terms.code.word
    for each, message in came.items():
        total += read_masked(message, each, round_id, terms)
    stayed = [*came]
    terms.enough(stayed, EXCHANGES[MASKED])
    named = b"".join(CLIENT.pack(each) for each in stayed)
    came = yield {each: pack(MASKED, SERVER, each, round_id, named) for each in stayed}, None

    # 4. Remove the masks: self-masks of clients in the sum, pairwise masks of those that are not.
    revealed = {
        each: read_revealed(message, each, round_id, dealt, stayed)
        for each, message in came.items()
    }
    terms.enough(revealed, EXCHANGES[UNMASKING])
    for dealer in dealt:
        which = SELF_MASK if dealer in stayed else MASK_KEY
        values = {holder: shares[dealer] for holder, shares in revealed.items()}
        secret = recover_secret(dealer, which, values, terms, roster[dealer])
        if which == SELF_MASK:
            total -= stream(secret, terms.count, word)
            continue
        for each in stayed:  # add what the lost client would have added
            keys = private_key(secret), roster[each].masking
            total += pair_mask(*keys, dealer, each, round_id, terms.count, word)
    verdict = {each: pack(UNMASKING, SERVER, each, round_id, b"") for each in revealed}
    yield verdict, terms.code.reduce(total)


def read_keys(message: bytes, number: int, terms: Terms) -> bytes:
    """A client's public keys. Raises ValueError for invalid keys, or other terms."""
    body = unpack(message, KEYS, number, SERVER, NO_ROUND)
    both, theirs = body[: 2 * KEY], body[2 * KEY :].decode(errors="replace")
    if theirs != str(terms):
        raise ValueError(
            f"client {number} came with {theirs}, the server with {terms}: give all ranks the same."
        )
    for public in (both[:KEY], both[KEY:]):
        try:
            agree(private_key(bytes(KEY)), public, b"a trial")
        except ValueError:
            raise ValueError(f"client {number}'s {public.hex()} is not an X25519 key.") from None
    return both


def read_dealt(
    message: bytes, number: int, roster: dict[int, Public], round_id: bytes
) -> dict[int, bytes]:
    """What a client has dealt, by holder."""
    body = unpack(message, SHARES, number, SERVER, round_id)
    if len(body) != DEALT.size * len(roster):
        raise ValueError(
            f"client {number}'s shares are {len(body)} bytes: {DEALT.size} for each of "
            f"{len(roster)} clients were due."
        )
    parts = (body[start : start + DEALT.size] for start in range(0, len(body), DEALT.size))
    return dict(zip(roster, parts, strict=True))


def read_masked(message: bytes, number: int, round_id: bytes, terms: Terms) -> np.ndarray:
    """A client's masked residues."""
    body, word = unpack(message, MASKED, number, SERVER, round_id), terms.code.word
    if len(body) != terms.count * word.itemsize:
        raise ValueError(
            f"client {number}'s masked vector is {len(body)} bytes: {word.itemsize} for each of "
            f"{terms.count} values were due."
        )
    return np.frombuffer(body, word)


def read_revealed(
    message: bytes, holder: int, round_id: bytes, dealt: Dealt, stayed: Collection[int]
) -> dict[int, int]:
    """The shares that a client has revealed, by dealer. Raises ValueError for one that differs from
    what was dealt."""
    body = unpack(message, UNMASKING, holder, SERVER, round_id)
    values = [value for (value,) in records(body, REVEALED, f"client {holder}'s shares")]
    if len(values) != len(dealt):
        raise ValueError(f"client {holder} reveals {len(values)} shares: {len(dealt)} were due.")
    for dealer, value in zip(sorted(dealt), values, strict=True):
        which = SELF_MASK if dealer in stayed else MASK_KEY
        known = DEALT.unpack(dealt[dealer][holder])[which]
        if digest(which, dealer, holder, round_id, value) != known:
            raise ValueError(
                f"client {holder}'s share of client {dealer}'s {SECRETS[which]} does not verify: "
                "another was dealt."
            )
    numbers = (int.from_bytes(value, "big") for value in values)
    return dict(zip(sorted(dealt), numbers, strict=True))


def recover_secret(
    dealer: int, which: int, values: dict[int, int], terms: Terms, public: Public
) -> bytes:
    """A client's secret, from its shares by holder. Raises ValueError, which names the client,
    where they do not recover it."""
    shares = [Share(holder, value, terms.threshold, KEY) for holder, value in values.items()]
    try:
        secret = recover(shares)
        assert isinstance(secret, bytes)
        if which == MASK_KEY and public_of(private_key(secret)) != public.masking:
            raise ValueError("they give another key than its own.")
    except ValueError as error:
        raise ValueError(
            f"client {dealer} has dealt shares that do not recover its {SECRETS[which]}: {error}"
        ) from None
    return secret

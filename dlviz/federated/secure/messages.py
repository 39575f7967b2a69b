"""The messages of a round: their format, and how an unexpected one is recognised.

    exchange | from | to | round | body       the server is 0; clients are 1, 2, ...

The round is a digest of all clients' public keys, which are new each time, so that a message of an
earlier round is noticed. Before the keys are known it is 0.
"""

from __future__ import annotations

import hashlib
import struct
from struct import Struct
from typing import Any, NamedTuple

from dlviz.federated.secure.masks import KEY, TAG
from dlviz.federated.secure.shares import PRIME

HEAD = Struct("<BHH16s")
EXCHANGES = ("keys", "shares", "masked vectors", "unmasking")
KEYS, SHARES, MASKED, UNMASKING = range(len(EXCHANGES))
REFUSAL = 255  # in the place of the exchange: its sender ends the round, the body says why
NO_ROUND = bytes(16)
SERVER = 0

MASK_KEY, SELF_MASK = range(2)  # the secrets that a client deals shares of
SECRETS = ("mask key", "self-mask")
WIDTH = (PRIME.bit_length() + 7) // 8  # bytes of a share
DIGEST = hashlib.sha256().digest_size

CLIENT = Struct("<H")
LISTED = Struct(f"<H{KEY}s{KEY}s")  # a client and its public keys
DEALT = Struct(f"<{DIGEST}s{DIGEST}s{2 * WIDTH + TAG}s")  # to a client: digests, sealed shares
RELAYED = Struct(f"<H{DEALT.size}s")  # who has dealt it
REVEALED = Struct(f"<{WIDTH}s")


class Public(NamedTuple):
    """A client's public keys: one for sealing, one for masks."""

    sealing: bytes
    masking: bytes


def pack(exchange: int, src: int, dst: int, round_id: bytes, body: bytes) -> bytes:
    """The message with that body."""
    return HEAD.pack(exchange, src, dst, round_id) + body


def unpack(message: bytes, exchange: int, src: int, dst: int, round_id: bytes) -> bytes:
    """The body of a message that `dst` got from `src` in an exchange of a round. Raises ValueError
    where it is from or for somebody else, of another round, or came twice."""
    if len(message) < HEAD.size:
        raise ValueError(f"{name(src)} sent {len(message)} bytes, too few for a message.")
    kind, says_src, says_dst, says_round = HEAD.unpack_from(message)
    due = EXCHANGES[exchange]
    if (says_src, says_dst) != (src, dst):
        raise ValueError(
            f"{name(src)} sent a message from {name(says_src)} to {name(says_dst)}, where one from "
            f"itself to {name(dst)} was due."
        )
    if kind != exchange:
        sent = EXCHANGES[kind] if kind < len(EXCHANGES) else f"number {kind}"
        raise ValueError(
            f"{name(src)} sent a message of the exchange {sent!r} where one of {due!r} was due: it "
            "came twice, or out of turn."
        )
    if says_round != round_id:
        raise ValueError(f"{name(src)} sent a message of {due!r} of another round.")
    return message[HEAD.size :]


def records(body: bytes, record: Struct, what: str) -> list[tuple[Any, ...]]:
    """The records in a body. Raises ValueError where its length does not fit."""
    try:
        return [*record.iter_unpack(body)]
    except struct.error:
        raise ValueError(
            f"{what} are {len(body)} bytes: {record.size} for each were due."
        ) from None


def name(number: int) -> str:
    return f"client {number}" if number else "the server"


# -- a round that ends -----------------------------------------------------------------------------
def refusal(src: int, dst: int, why: str) -> bytes:
    """The message that ends a round."""
    return pack(REFUSAL, src, dst, NO_ROUND, why.encode())


def reason(message: bytes) -> str | None:
    """Why its sender ends the round, None where it does not."""
    return message[HEAD.size :].decode() if message[:1] == bytes([REFUSAL]) else None


# -- what both sides read --------------------------------------------------------------------------
def read_roster(body: bytes, clients: int) -> dict[int, Public]:
    """The public keys of the round's clients. Raises ValueError for a duplicate: a third client
    could make the masks of two that share a key."""
    found = records(body, LISTED, "the public keys")
    roster = {number: Public(*keys) for number, *keys in found}
    if len(roster) < len(found) or len({*sum(roster.values(), ())}) < 2 * len(found):
        raise ValueError(f"of the clients {[number for number, *_ in found]} or their keys one is "
                         "named twice.")  # fmt: skip
    if not roster.keys() <= {*range(1, clients + 1)}:
        raise ValueError(f"clients {[*roster]} are named, and there are {clients}.")
    return roster


def round_of(roster: bytes) -> bytes:
    """The identifier of the round with these public keys."""
    return hashlib.sha256(roster).digest()[: len(NO_ROUND)]


def digest(which: int, dealer: int, holder: int, round_id: bytes, value: bytes) -> bytes:
    """The digest by which the server recognises a share that it has not seen: nobody can substitute
    another. It reveals nothing about a number drawn from 2^256."""
    about = bytes([which]) + CLIENT.pack(dealer) + CLIENT.pack(holder) + round_id
    return hashlib.sha256(about + value).digest()

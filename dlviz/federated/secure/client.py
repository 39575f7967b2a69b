"""A client of a round: a coroutine that yields its message of an exchange, and gets the answer.

It knows no ranks. It trusts the server about whose keys and shares have arrived; it checks what it
is then asked to reveal, and ends the round with a ValueError where that would be too much.

Source: Bonawitz et al., CCS 2017, Figure 4, "User u".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dlviz.federated.secure.masks import (
    KEY,
    pair_mask,
    private_key,
    public_of,
    seal,
    stream,
    unseal,
)
from dlviz.federated.secure.messages import (
    CLIENT,
    DEALT,
    EXCHANGES,
    KEYS,
    MASK_KEY,
    MASKED,
    NO_ROUND,
    RELAYED,
    SECRETS,
    SELF_MASK,
    SERVER,
    SHARES,
    UNMASKING,
    WIDTH,
    Public,
    digest,
    pack,
    read_roster,
    records,
    round_of,
    unpack,
)
from dlviz.federated.secure.shares import share
from dlviz.federated.secure.terms import Terms

Held = dict[int, tuple[bytes, bytes]]  # shares of both secrets, by dealer


def client(
    number: int, terms: Terms, vector: torch.Tensor, draw: Callable[[int], bytes] = os.urandom
) -> Generator[bytes, bytes, None]:
    """Client `number`, 1 or more, and its vector. `draw(n)` gives n random bytes: the system's,
    since the server would also have a seed that came with the program."""
    residues = encode(number, terms, vector)  # before any message: a bad vector ends the round
    count, word = len(residues), terms.code.word

    # 1. Keys. Masks have their own pair: the server gets its private half if a client drops out.
    mask_key, self_mask = draw(KEY), draw(KEY)
    sealing, masking = private_key(draw(KEY)), private_key(mask_key)
    public = Public(public_of(sealing), public_of(masking))
    answer = yield pack(KEYS, number, SERVER, NO_ROUND, b"".join(public) + str(terms).encode())
    listed = unpack(answer, KEYS, SERVER, number, NO_ROUND)
    roster, round_id = read_roster(listed, terms.clients), round_of(listed)
    terms.enough(roster, EXCHANGES[KEYS])
    if roster.get(number) != public:  # others would seal its shares for the server
        raise ValueError(f"the server names keys of client {number} that are not its own.")

    # 2. Shares of both secrets, sealed for everybody whose keys have arrived.
    dealt = deal((mask_key, self_mask), number, sealing, roster, round_id, terms)
    answer = yield pack(SHARES, number, SERVER, round_id, dealt)
    relayed = unpack(answer, SHARES, SERVER, number, round_id)
    held = open_dealt(relayed, number, sealing, roster, round_id)
    terms.enough(held, EXCHANGES[SHARES])

    # 3. The vector under its masks: one with each client whose shares have arrived, and its own.
    masked = residues + stream(self_mask, count, word)  # b_u: hides a vector that arrives too late
    for peer in held.keys() - {number}:
        keys = masking, roster[peer].masking
        # The peer adds the negative: the two cancel in the sum.
        masked += pair_mask(*keys, number, peer, round_id, count, word)
    answer = yield pack(MASKED, number, SERVER, round_id, terms.code.reduce(masked).tobytes())
    listed = unpack(answer, MASKED, SERVER, number, round_id)
    stayed = read_stayed(listed, number, held)
    terms.enough(stayed, EXCHANGES[MASKED])

    # 4. One secret of each client: the self-mask if it has stayed, the mask key if not.
    # Never both: whoever has both masks of a client has its vector.
    which = {dealer: SELF_MASK if dealer in stayed else MASK_KEY for dealer in held}
    revealed = b"".join(held[dealer][which[dealer]] for dealer in sorted(held))
    yield pack(UNMASKING, number, SERVER, round_id, revealed)


def encode(number: int, terms: Terms, vector: torch.Tensor) -> np.ndarray:
    """The residues of a client's vector. Raises ValueError where it is not finite floats."""
    if not vector.is_floating_point():
        raise ValueError(f"client {number}'s vector is of {vector.dtype}: use a float dtype.")
    values = vector.detach().flatten()
    bad = (~values.isfinite()).nonzero().flatten()
    if len(bad):
        raise ValueError(
            f"client {number}'s vector is {float(values[bad[0]])} in element {int(bad[0])}: no "
            "residue stands for that; use finite values."
        )
    return terms.code.encode(vector)


def deal(
    secrets: tuple[bytes, bytes],
    number: int,
    sealing: X25519PrivateKey,
    roster: dict[int, Public],
    round_id: bytes,
    terms: Terms,
) -> bytes:
    """A client's shares for each client of the roster, itself included: digests for the server, the
    shares themselves readable only by the holder."""
    shares = [share(secret, terms.clients, terms.threshold) for secret in secrets]  # Shamir's
    dealt = []
    for holder, public in roster.items():
        values = [each[holder - 1].y.to_bytes(WIDTH, "big") for each in shares]
        digests = (digest(i, number, holder, round_id, value) for i, value in enumerate(values))
        plain = b"".join(values)
        dealt.append(
            DEALT.pack(*digests, seal(sealing, public.sealing, number, holder, round_id, plain))
        )
    return b"".join(dealt)


def open_dealt(
    body: bytes,
    number: int,
    sealing: X25519PrivateKey,
    roster: dict[int, Public],
    round_id: bytes,
) -> Held:
    """What was dealt to client `number`. Raises ValueError, which names the dealer, for a share
    that does not verify."""
    held: Held = {}
    for dealer, dealt in records(body, RELAYED, "the shares of all"):
        if dealer in held or dealer not in roster:
            raise ValueError(f"the server hands on shares of client {dealer} twice, or unasked.")
        *digests, sealed = DEALT.unpack(dealt)
        # The server relayed it, and could neither read nor change it.
        plain = unseal(sealing, roster[dealer].sealing, dealer, number, round_id, sealed)
        values = plain[:WIDTH], plain[WIDTH:]
        for i, value in enumerate(values):
            if digest(i, dealer, number, round_id, value) != digests[i]:
                raise ValueError(
                    f"client {dealer}'s share of its {SECRETS[i]} for client {number} does not "
                    "verify: the server has the digest of another."
                )
        held[dealer] = values
    if number not in held:
        raise ValueError(f"the server has withheld the shares of client {number} itself.")
    return held


def read_stayed(body: bytes, number: int, held: Held) -> set[int]:
    """Whose vectors have arrived. Raises ValueError for an impossible list."""
    named = [each for (each,) in records(body, CLIENT, "the clients that have stayed")]
    if len({*named}) < len(named) or not held.keys() >= {*named}:
        raise ValueError(f"the server says that of clients {sorted(held)} {named} have stayed.")
    if number not in named:
        raise ValueError(f"the server says that client {number} has dropped out, which has not.")
    return {*named}

"""What a round of federated averaging costs: closed forms, in seconds, bytes and noise.

    seconds of a client  2 α for each exchange + bytes / β + steps x step
    seconds of a round   max over the clients drawn of their seconds, at most the deadline
      of K, n drawn      mean = Σ_j P(the last is the j-th fastest) t_j,  P = C(j-1, n-1) / C(K, n)
      each drawn by C    Poisson: P = C (1-C)^(K-j); nobody is drawn, and it takes 0, by (1-C)^K
    bytes of a client    |θ| out and |θ| back; in a secure sum its four exchanges

Source: McMahan et al., AISTATS 2017; for the secure sum, dlviz/federated/secure/.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlviz.counts import check_amounts, check_counts, closed_form, of_numbers

FLOAT = 4  # bytes


class ClientBytes(NamedTuple):
    """Bytes of one client in a round: `out`, the weights; `back`, its update; `beside`, what a
    secure sum adds, both directions together."""

    out: int
    back: int
    beside: int


@of_numbers
def client_bytes(parameters: int, bits: int = 32) -> ClientBytes:
    """Weights go out in float32, an update comes back in values of `bits`. This and all below raise
    ValueError for counts and amounts that cannot be."""
    check_counts(parameters=parameters, bits=bits)
    return ClientBytes(FLOAT * parameters, parameters * bits // 8, 0)


@of_numbers
def secure_client_bytes(
    parameters: int, clients: int, threshold: int, clip: float, bits: int = 32
) -> ClientBytes:
    """The same where the updates of so many `clients` are summed under masks. The number of a
    client's examples is one more value of its masked vector."""
    check_counts(parameters=parameters)
    sends, gets = secure_sum_bytes(parameters + 1, clients, threshold, clip, bits)
    back = FLOAT * (parameters + 1)
    return ClientBytes(FLOAT * parameters, back, sends + gets - back)


@of_numbers
def secure_sum_bytes(
    values: int, clients: int, threshold: int, clip: float, bits: int = 32
) -> tuple[int, int]:
    """What a client sends in the four exchanges of `federated.secure_sum`, and what it gets. The
    terms are sent as text; up to 32 bits a value takes 4 bytes, above it 8."""
    check_counts(values=values, clients=clients, threshold=threshold, bits=bits)
    check_amounts(clip=clip)
    terms = f"shape ({values},), float32, threshold {threshold}, clip {clip}, bits {bits}"
    word = 4 if bits <= 32 else 8
    return word * values + 179 * clients + 148 + len(terms), 216 * clients + 84


@closed_form
def largest_clip(clients: int, bits: int = 32) -> int:
    """The largest whole value whose sum over so many clients fits a secure sum's modulus 2^`bits`,
    either sign, in steps of 2^-16; 0 where none does."""
    check_counts(clients=clients, bits=bits)
    return (2 ** (bits - 1) - 1) // (clients << 16)


@closed_form
def client_seconds(
    steps: int,
    nbytes: int,
    *,
    step: float,
    latency: float = 0.0,
    bandwidth: float | None = None,
    exchanges: int = 1,
) -> float:
    """Seconds from the start of a round to the arrival of a client's answer: `step` seconds for
    each of its steps, `nbytes` in both directions together, and the latency there and back of each
    exchange (a secure sum has 4). `bandwidth` in bytes/s; without it bytes take no time."""
    check_counts(0, steps=steps)
    check_counts(exchanges=exchanges)
    check_amounts(nbytes=nbytes, step=step, latency=latency, bandwidth=bandwidth)
    if bandwidth == 0:
        raise ValueError("bandwidth=0 bytes/s sends nothing: use more than 0, or leave it out.")
    return 2 * exchanges * latency + nbytes / (bandwidth or math.inf) + steps * step


@closed_form
def local_steps(examples: int, epochs: int, batch: int | None = None) -> int:
    """Steps of a client in a round; without `batch` an epoch is one step, on all of its data."""
    check_counts(epochs=epochs, batch=batch)
    check_counts(0, examples=examples)
    return epochs * math.ceil(examples / (batch or examples or 1))


@of_numbers
def round_seconds(seconds: Sequence[float], drawn: int, deadline: float = math.inf) -> float:
    """The mean length of a round of `drawn` of the clients, all equally likely."""
    check_counts(0, drawn=drawn)
    _check_seconds(seconds, deadline)
    if drawn > len(seconds):
        raise ValueError(f"drawn={drawn!r} is more than the {len(seconds)} clients.")
    whole = math.comb(len(seconds), drawn)
    nobody_later = [math.comb(j, drawn) / whole for j in range(1, len(seconds) + 1)]
    return _mean_of_last(seconds, nobody_later, 0.0, deadline)


@of_numbers
def poisson_round_seconds(
    seconds: Sequence[float], chance: float, deadline: float = math.inf
) -> float:
    """The mean length of a round that draws each client on its own, with probability `chance`."""
    check_amounts(chance=chance)
    _check_seconds(seconds, deadline)
    if chance > 1:
        raise ValueError(f"chance={chance!r} is no probability: use 0 to 1.")
    clients = len(seconds)
    nobody_later = [(1 - chance) ** (clients - j) for j in range(1, clients + 1)]
    return _mean_of_last(seconds, nobody_later, (1 - chance) ** clients, deadline)


def _check_seconds(seconds: Sequence[float], deadline: float) -> None:
    check_amounts(seconds=seconds, deadline=None if deadline == math.inf else deadline)


def _mean_of_last(
    seconds: Sequence[float], nobody_later: list[float], nobody: float, deadline: float
) -> float:
    """`nobody_later`: the probability that no client slower than the j-th fastest is drawn."""
    last = np.diff(nobody_later, prepend=nobody)
    return float(np.minimum(sorted(seconds), deadline) @ last)


@closed_form
def noise_length(sigma: float, parameters: int, drawn: float) -> float:
    """The norm of the noise on the mean of clipped updates, in units of their clipping bound S:
    each of the parameters has σS on the sum of `drawn` clients (their mean number)."""
    check_counts(0, parameters=parameters)
    check_amounts(sigma=sigma, drawn=drawn)
    if not drawn:
        raise ValueError(f"drawn={drawn!r} clients have no mean: use more than 0.")
    return sigma * math.sqrt(parameters) / drawn

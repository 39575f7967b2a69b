"""A secret as n shares: any k of them recover it, k-1 reveal nothing about it.

The secret is where a polynomial of degree k-1 crosses the y-axis; its other coefficients are
random. A share is a point of it, and k points determine it. Through k-1 points and any secret there
is exactly one such polynomial, so all secrets are equally likely.

    y |      *  share 2
      |   *     share 1       q(x) = secret + c1 x + ... + c(k-1) x^(k-1)     modulo a prime
      o  secret = q(0)
      +-----------> x

Source: Shamir, "How to Share a Secret", CACM 22(11), 1979.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from dlviz.counts import check_counts

PRIME = 2**256 + 297  # the first one above 2^256: 32 bytes are one element of the field
LONGEST = 32  # bytes of a secret


class Share(NamedTuple):
    """The point (`x`, `y`) of a polynomial that `needed` points determine; `nbytes` is the length
    of the secret, None where it is an int."""

    x: int
    y: int
    needed: int
    nbytes: int | None = None


def share(secret: int | bytes, n: int, k: int, seed: int | None = None) -> list[Share]:
    """The n shares of a secret: a number from 0 to PRIME-1, or up to 32 bytes. They are drawn from
    the system's randomness, or from a `seed`: whoever knows it can repeat them.

    Raises ValueError for any other secret, and unless 1 <= k <= n.
    Cost: n(k-1) multiplications modulo PRIME.
    """
    if not (isinstance(n, int) and isinstance(k, int) and 1 <= k <= n):
        raise ValueError(f"k={k!r} of n={n!r} shares cannot recover a secret: use 1 <= k <= n.")
    check_counts(n=n, k=k)
    value, nbytes = _number(secret)
    source = random.SystemRandom() if seed is None else random.Random(seed)
    coefficients = [value, *(source.randrange(PRIME) for _ in range(k - 1))]
    return [Share(x, polynomial(coefficients, x, PRIME), k, nbytes) for x in range(1, n + 1)]


def recover(shares: Sequence[Share]) -> int | bytes:
    """The secret that `share` was called with.

    Raises ValueError for too few shares, a duplicate, shares of different secrets, or one that was
    altered (noticed if there are more than needed).
    """
    if len({(each.needed, each.nbytes) for each in shares}) != 1:
        raise ValueError(f"{len(shares)} shares of one secret are wanted, not of none or several.")
    needed, nbytes = shares[0].needed, shares[0].nbytes
    points = {each.x: each.y for each in shares}
    if len(points) < len(shares):
        raise ValueError(f"shares {[each.x for each in shares]} name one twice: leave it out.")
    if len(points) < needed:
        raise ValueError(f"{len(points)} shares say nothing about a secret: {needed} recover it.")
    first = dict([*points.items()][:needed])
    for x, y in [*points.items()][needed:]:
        if value_at(first, x, PRIME) != y:
            raise ValueError(
                f"share {x} is not on the polynomial of shares {[*first]}: one of them is not as "
                "it was dealt."
            )
    value = value_at(first, 0, PRIME)
    if nbytes is None:
        return value
    if value >= 256**nbytes:
        raise ValueError(f"shares {[*first]} give no {nbytes} bytes: one is not as it was dealt.")
    return value.to_bytes(nbytes, "big")


def _number(secret: int | bytes) -> tuple[int, int | None]:
    """The secret as an element of the field, and its length where it is bytes."""
    if isinstance(secret, bytes) and len(secret) <= LONGEST:
        return int.from_bytes(secret, "big"), len(secret)
    if isinstance(secret, int) and 0 <= secret < PRIME:
        return int(secret), None
    what = f"{len(secret)} bytes" if isinstance(secret, bytes) else type(secret).__name__
    raise ValueError(
        f"a secret of {what} cannot be shared: use a number from 0 to 2^256 + 296 or up to "
        f"{LONGEST} bytes; of something longer share the key that encrypts it."
    )


def polynomial(coefficients: Sequence[int], x: int, prime: int) -> int:
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % prime
    return value


def value_at(points: dict[int, int], x: int, prime: int) -> int:
    """The value at `x` of the polynomial of lowest degree through `points`, which maps x to y."""
    weights = lagrange(tuple(points), x, prime)
    return sum(weight * y for weight, y in zip(weights, points.values(), strict=True)) % prime


@lru_cache(maxsize=256)  # the secrets of a round have their shares in the same places
def lagrange(places: tuple[int, ...], x: int, prime: int) -> tuple[int, ...]:
    """The weight of the value at each of `places` in the value at `x`: the product of
    (x - j) / (i - j) over the other places j."""
    weights = []
    for i in places:
        above = below = 1
        for j in places:
            if j != i:
                above, below = above * (x - j) % prime, below * (i - j) % prime
        weights.append(above * pow(below, -1, prime) % prime)
    return tuple(weights)

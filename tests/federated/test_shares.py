"""A secret as shares: k recover it, k-1 leave every secret as likely as the other."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from dlviz.federated.secure import recover, share, shares
from dlviz.federated.secure.shares import PRIME, lagrange, polynomial, value_at

SECRETS = (0, 1, PRIME - 1, 2**255 + 12345, b"", b"\0\0key", bytes(32), b"\xff" * 32)


@pytest.mark.parametrize("n", range(1, 8))
def test_every_set_of_k_shares_recovers_the_secret(n):
    for k, secret in itertools.product(range(1, n + 1), SECRETS):
        dealt = share(secret, n, k)
        for chosen in itertools.combinations(dealt, k):
            assert recover(chosen[::-1]) == secret
        assert recover(dealt) == secret


class Enumerated:
    """A source of randomness that gives numbers in turn."""

    def __init__(self, numbers):
        self.numbers = iter(numbers)

    def randrange(self, below):
        assert below == shares.PRIME, "a coefficient is any element of the field"
        return next(self.numbers)


@pytest.mark.parametrize(("prime", "n", "k"), [(5, 4, 2), (7, 4, 3), (5, 4, 4)])
def test_k_minus_1_shares_leave_every_secret_equally_likely_counted(prime, n, k, monkeypatch):
    """In a small field, where all polynomials can be gone through: whatever k-1 shares show, as
    many polynomials show it for one secret as for another."""
    monkeypatch.setattr(shares, "PRIME", prime)
    places = [*itertools.combinations(range(n), k - 1)]
    seen = {each: Counter() for each in places}
    for secret, *drawn in itertools.product(range(prime), repeat=k):
        monkeypatch.setattr(random, "SystemRandom", lambda drawn=drawn: Enumerated(drawn))
        values = [each.y for each in share(secret, n, k)]
        for each in places:
            seen[each][tuple(values[i] for i in each), secret] += 1
    for counts in seen.values():
        assert len(counts) == prime**k and {*counts.values()} == {1}


def test_shares_are_another_each_time_and_the_same_by_a_seed():
    secret = b"a key"
    assert share(secret, 3, 2, seed=1) == share(secret, 3, 2, seed=1)
    assert share(secret, 3, 2, seed=1) != share(secret, 3, 2, seed=2)
    assert share(secret, 3, 2) != share(secret, 3, 2)
    random.seed(0)
    first = share(secret, 3, 2)
    random.seed(0)
    assert share(secret, 3, 2) != first, "the system's randomness has no seed"


def test_the_prime_is_the_first_above_what_32_bytes_hold():
    def is_prime(n):  # Miller and Rabin
        odd, twos = n - 1, 0
        while odd % 2 == 0:
            odd, twos = odd // 2, twos + 1
        for base in range(2, 20):
            powers = [pow(base, odd << i, n) for i in range(twos)]
            if powers[0] != 1 and n - 1 not in powers:
                return False
        return True

    assert is_prime(PRIME) and not any(is_prime(n) for n in range(2**256 + 1, PRIME, 2))


def test_a_polynomial_is_read_where_nobody_has_a_point():
    points = {x: polynomial([3, 1, 4], x, 11) for x in (1, 4, 6)}
    assert [value_at(points, x, 11) for x in range(11)] == [
        (3 + x + 4 * x * x) % 11 for x in range(11)
    ]
    assert lagrange((2,), 0, 11) == (1,)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ((0, 1), "2 shares say nothing about a secret: 3 recover it"),
        ((0, 1, 1), r"shares \[1, 2, 2\] name one twice"),
        ((), "0 shares of one secret are wanted, not of none or several"),
    ],
)
def test_shares_that_recover_nothing_are_refused(chosen, message):
    dealt = share(b"a key", 5, 3)
    with pytest.raises(ValueError, match=message):
        recover([dealt[i] for i in chosen])


def test_a_share_that_is_not_as_it_was_dealt_is_seen_where_there_is_one_more():
    dealt = share(7, 5, 3)
    dealt[1] = dealt[1]._replace(y=dealt[1].y ^ 1)
    with pytest.raises(ValueError, match=r"share 4 is not on the polynomial of shares \[1, 2, 3\]"):
        recover(dealt[:4])
    with pytest.raises(ValueError, match="2 shares of one secret are wanted"):
        recover([share(7, 5, 3)[0], share(b"7", 5, 3)[1]])
    short = [each._replace(nbytes=2) for each in share(2**20, 3, 2)]
    with pytest.raises(ValueError, match=r"shares \[1, 2\] give no 2 bytes"):
        recover(short[:2])


@pytest.mark.parametrize(
    ("secret", "n", "k", "message"),
    [
        (1, 3, 4, "k=4 of n=3 shares cannot recover a secret"),
        (1, 3, 0, "k=0 of n=3"),
        (1, 3.0, 2, "n=3.0"),
        (-1, 3, 2, "a secret of int cannot be shared"),
        (PRIME, 3, 2, "from 0 to 2\\^256 \\+ 296"),
        (bytes(33), 3, 2, "a secret of 33 bytes cannot be shared.*share the key that encrypts it"),
        ("key", 3, 2, "a secret of str"),
    ],
)
def test_what_cannot_be_shared_is_refused(secret, n, k, message):
    with pytest.raises(ValueError, match=message):
        share(secret, n, k)

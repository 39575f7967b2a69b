"""Secure sums: exactly the plain sum, of whoever stays; masks that hide; rounds that end."""

from __future__ import annotations

import inspect
import itertools
import os
import random

import numpy as np
import pytest
import torch
from secure_oracle import NOBODY, agreed, data, plain_sum

from dlviz.federated.secure import Share, recover
from dlviz.federated.secure import client as clients
from dlviz.federated.secure.client import client
from dlviz.federated.secure.fixed_point import FixedPoint
from dlviz.federated.secure.masks import KEY, pair_mask, private_key, public_of, stream
from dlviz.federated.secure.messages import (
    CLIENT,
    DEALT,
    EXCHANGES,
    HEAD,
    KEYS,
    LISTED,
    MASKED,
    REVEALED,
    SERVER,
    SHARES,
    UNMASKING,
    WIDTH,
    pack,
    read_roster,
    round_of,
)
from dlviz.federated.secure.server import server


class Round:
    """A round in one process. `messages[exchange][client]` is what came to the server, `answers`
    what it gave; `tamper` may change either, in place."""

    def __init__(self, terms, vectors, draw=os.urandom, tamper=lambda *all: None):
        self.terms, self.tamper = terms, tamper
        self.clients = {each: client(each, terms, vector, draw) for each, vector in vectors.items()}
        self.server = server(terms)
        next(self.server)
        self.next = dict.fromkeys(self.clients)
        self.messages, self.answers, self.total = [], [], None

    def exchange(self, gone=NOBODY):
        """The next exchange, in which some drop out."""
        messages = {
            each: self.clients[each].send(answer)
            for each, answer in self.next.items()
            if each not in gone
        }
        number = len(self.messages)
        self.tamper("up", number, messages)
        self.messages.append(messages)
        self.next, self.total = self.server.send(messages)
        self.next = dict(self.next)
        self.tamper("down", number, self.next)
        self.answers.append(self.next)

    def play(self, drops=(NOBODY, NOBODY, NOBODY, NOBODY)):
        for gone in drops:
            self.exchange(gone)
        return self.total


# -- the sum -------------------------------------------------------------------------------------
def check_round(terms, drops):
    """The sum is that of those whose masked vector came, or the round ends where too few are
    left."""
    vectors = data(terms)
    left, summed = {*vectors}, set()
    for exchange, gone in enumerate(drops):
        left = left - gone
        if exchange == MASKED:
            summed = left
        if len(left) < terms.threshold:
            why = f"^{len(left)} of {terms.clients} clients are left after the exchange of "
            with pytest.raises(ValueError, match=why + EXCHANGES[exchange]):
                Round(terms, vectors).play(drops)
            return
    total = Round(terms, vectors).play(drops)
    expected = plain_sum(terms, [vectors[each] for each in summed])
    assert total.tolist() == expected.tolist(), (terms, drops)


def subsets(n):
    everybody = range(1, n + 1)
    return [frozenset(s) for m in range(n + 1) for s in itertools.combinations(everybody, m)]


def neighbours(n):
    """A thin choice of subsets: nobody, two side by side, and one more and one less than may go."""
    pairs = [{i, i % n + 1} for i in range(1, n + 1)]
    edge = [range(1, n - n // 2), range(2, n - n // 2 + 2)]
    return [frozenset(each) for each in ([], *pairs, *edge)]


@pytest.mark.parametrize(
    ("n", "choice"),
    [
        *((n, subsets) for n in (2, 3, 4)),
        *((n, neighbours) for n in (5, 6, 7, 8)),
        *(pytest.param(n, subsets, marks=pytest.mark.sweep) for n in (5, 6, 7, 8)),
    ],
)
def test_the_sum_is_the_plain_one_whoever_drops_out_of_whatever_exchange(n, choice):
    for exchange, gone in itertools.product(range(len(EXCHANGES)), choice(n)):
        drops = [NOBODY] * len(EXCHANGES)
        drops[exchange] = gone
        check_round(agreed(n), drops)


@pytest.mark.parametrize("n", [3, pytest.param(4, marks=pytest.mark.sweep)])
def test_the_sum_is_the_plain_one_where_each_drops_out_of_an_exchange_of_its_own(n):
    for fates in itertools.product(range(len(EXCHANGES) + 1), repeat=n):
        drops = [{i for i, fate in enumerate(fates, 1) if fate == e} for e in range(len(EXCHANGES))]
        check_round(agreed(n), drops)


@pytest.mark.parametrize(
    ("n", "k", "bits", "clip"),
    [(2, 2, 19, 1.0), (3, 3, 32, 0.3), (5, 4, 33, 1e-6), (5, 3, 48, 1e4), (7, 4, 62, 12345.678)],
)
def test_the_sum_is_exact_for_other_thresholds_bits_and_clips(n, k, bits, clip):
    check_round(agreed(n, k, count=5, clip=clip, bits=bits), [NOBODY] * 4)
    check_round(agreed(n, k, count=5, clip=clip, bits=bits), [NOBODY, {1}, {2}, NOBODY])


@pytest.mark.parametrize("exchange", range(len(EXCHANGES)))
def test_a_round_that_too_few_are_left_of_has_revealed_nothing(exchange):
    """Before the last exchange the server has no share of anything, after it too few."""
    terms = agreed(5)
    drops = [NOBODY] * exchange + [{1, 2, 3}] + [NOBODY] * (3 - exchange)
    played = Round(terms, data(terms))
    with pytest.raises(ValueError, match="no vector and no sum is known"):
        played.play(drops)
    assert played.total is None and len(played.messages) == exchange + 1
    for dealer in range(1, 6) if exchange == UNMASKING else ():
        shares = [Share(h, shares[dealer], 3, KEY) for h, shares in revealed_in(played).items()]
        with pytest.raises(ValueError, match="2 shares say nothing about a secret: 3 recover it"):
            recover(shares)


def revealed_in(played):
    """The shares that the server has received, by holder and dealer."""
    return {
        holder: {
            dealer: int.from_bytes(value, "big")
            for dealer, (value,) in enumerate(REVEALED.iter_unpack(message[HEAD.size :]), 1)
        }
        for holder, message in played.messages[UNMASKING].items()
    }


def test_a_vector_of_no_values_has_a_sum():
    assert Round(agreed(3, count=0), data(agreed(3, count=0))).play().tolist() == []


# -- fixed point ---------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [2, 3, 5, 8, 1000])
@pytest.mark.parametrize(
    ("bits", "clip"), [(32, 1.0), (32, 0.999), (40, 100.0), (62, 3.0), (62, 1e-300), (61, 2.0**20)]
)
def test_the_modulus_holds_the_largest_sum_and_would_not_with_finer_steps(n, bits, clip):
    code = FixedPoint(n, clip, bits)
    code.check()
    largest = int(code.encode(torch.tensor([clip], dtype=torch.float64)).item())
    assert n * largest < 2 ** (bits - 1)
    if clip > 1e-200:
        assert n * largest * 2 + n >= 2 ** (bits - 1) - n, "steps are as fine as that allows"
    both = code.encode(torch.tensor([clip, -clip], dtype=torch.float64))
    total = code.reduce(both * code.word.type(n))
    assert code.decode(total).tolist() == pytest.approx([n * clip, -n * clip], rel=n * 2.0**-15)


def test_values_are_clipped_and_rounded_to_the_nearest_step():
    code = FixedPoint(4, 1.0, 20)  # steps of 2^-16: 4 · 2^16 would be 2^18, half of what there is
    assert code.fraction == 16
    values = torch.tensor([0.0, 5.0, -5.0, 1.4 * 2.0**-16, -1.6 * 2.0**-16])
    assert (code.decode(code.encode(values)) * 2**16).tolist() == [0, 65536, -65536, 1, -2]


# -- what a masked vector says -------------------------------------------------------------------
BINS = 256
UNIFORM = BINS - 1 + 5 * (2 * (BINS - 1)) ** 0.5  # five standard deviations above the mean


def chi_square(residues, bits):
    """Of the residues' upper and lower 8 bits against the uniform distribution, the larger."""
    parts = residues.astype(np.int64) >> (bits - 8), residues.astype(np.int64) % BINS
    expected = len(residues) / BINS
    counts = (np.bincount(part, minlength=BINS) for part in parts)
    return max(float(((each - expected) ** 2 / expected).sum()) for each in counts)


def masked_of(message, terms):
    return np.frombuffer(message[HEAD.size :], terms.code.word)


@pytest.mark.parametrize("bits", [20, 32, 48])
def test_any_one_masked_vector_is_uniform_and_one_under_a_small_mask_is_not(bits):
    terms = agreed(3, count=20_000, bits=bits)
    vectors = {each: torch.full(terms.shape, 0.25 * each) for each in (1, 2, 3)}
    draws = random.Random(7).randbytes  # so that this is no matter of luck
    played = Round(terms, vectors, draws)
    assert {*played.play().tolist()} == {int(1.5 * 2**terms.code.fraction)}
    for each, vector in vectors.items():
        residues = masked_of(played.messages[MASKED][each], terms)
        assert chi_square(residues, bits) < UNIFORM
        bare = terms.code.encode(vector)
        assert chi_square(terms.code.reduce(residues - bare), bits) < UNIFORM
        small = np.random.default_rng(each).integers(0, 2 ** (bits - 3), terms.count)
        assert chi_square(terms.code.reduce(bare + small.astype(terms.code.word)), bits) > UNIFORM
        coarse = terms.code.reduce(residues << terms.code.word.type(3))
        assert chi_square(coarse, bits) > UNIFORM


def test_two_rounds_of_the_same_vectors_have_nothing_in_common():
    terms = agreed(3, count=64)
    rounds = [Round(terms, data(terms)) for _ in range(2)]
    assert rounds[0].play().tolist() == rounds[1].play().tolist()
    for one, other in itertools.product(*(each.messages[MASKED].values() for each in rounds)):
        same = masked_of(one, terms) == masked_of(other, terms)
        assert same.sum() < 3
    assert inspect.signature(client).parameters["draw"].default is os.urandom


# -- a server that lies --------------------------------------------------------------------------
def lied_to(terms, victim, told_dropped):
    """What a server gets in the last exchange if it says to some that the victim dropped out, to
    the rest that it has stayed: shares of its mask key, shares of its self-mask."""
    vectors = data(terms)
    played = Round(terms, vectors)
    for _ in (KEYS, SHARES, MASKED):
        played.exchange()
    listed = played.answers[KEYS][victim][HEAD.size :]
    roster, round_id = read_roster(listed, terms.clients), round_of(listed)
    shares = [], []
    for each, machine in played.clients.items():
        stayed = [i for i in vectors if i != victim or each not in told_dropped]
        named = b"".join(map(CLIENT.pack, stayed))
        answer = machine.send(pack(MASKED, SERVER, each, round_id, named))
        values = [int.from_bytes(v, "big") for (v,) in REVEALED.iter_unpack(answer[HEAD.size :])]
        mine = Share(each, values[sorted(vectors).index(victim)], terms.threshold, KEY)
        shares[each not in told_dropped].append(mine)
        with pytest.raises(StopIteration):  # who has answered does not answer again
            machine.send(pack(MASKED, SERVER, each, round_id, named))
    masked = masked_of(played.messages[MASKED][victim], terms)

    def bare(mask_key, self_mask):
        """The victim's vector without its masks."""
        found = masked - stream(self_mask, terms.count, terms.code.word)
        for each in roster.keys() - {victim}:
            keys = private_key(mask_key), roster[each].masking
            found = found - pair_mask(*keys, victim, each, round_id, terms.count, terms.code.word)
        return terms.code.reduce(found)

    return shares, bare, terms.code.encode(vectors[victim])


@pytest.mark.parametrize("n", [4, 6])
def test_half_the_clients_are_too_few_a_server_that_lies_to_them_reads_a_vector(n):
    terms, victim = agreed(n, n // 2), 2
    others = [each for each in range(1, n + 1) if each != victim]
    shares, bare, vector = lied_to(terms, victim, others[: n // 2])
    assert [len(each) for each in shares] == [n // 2, n // 2]
    assert bare(*map(recover, shares)).tolist() == vector.tolist()
    with pytest.raises(ValueError, match=f"threshold={n // 2} of {n} clients: with half of them"):
        terms.check()


@pytest.mark.parametrize("n", [3, 4, 5])
def test_with_more_than_half_the_server_gets_one_secret_whomever_it_lies_to(n):
    terms, victim = agreed(n), 2
    terms.check()
    others = [each for each in range(1, n + 1) if each != victim]
    for told_dropped in subsets(n):
        if victim in told_dropped:
            continue
        if n - 1 < terms.threshold and told_dropped:
            with pytest.raises(ValueError, match="clients are left"):
                lied_to(terms, victim, told_dropped)
            continue
        shares, _, _ = lied_to(terms, victim, told_dropped)
        assert sum(map(len, shares)) == n == len(others) + 1
        with pytest.raises(ValueError, match="say nothing about a secret|shares of one secret"):
            [recover(each) for each in shares]


def down(exchange, number, change):
    """A server that changes its answer to a client in an exchange."""

    def tamper(direction, now, messages):
        if (direction, now) == ("down", exchange):
            message = messages[number]
            messages[number] = message[: HEAD.size] + change(message[HEAD.size :])

    return tamper


def named(*numbers):
    return lambda body: b"".join(map(CLIENT.pack, numbers))


def other_keys(body):
    """The server's own key in the place of the first client's."""
    return body[: CLIENT.size] + public_of(private_key(b"s" * KEY)) + body[CLIENT.size + KEY :]


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (down(MASKED, 1, named(2, 3, 4)), "says that client 1 has dropped out, which has not"),
        (down(MASKED, 1, named(1, 2)), "2 of 4 clients are left after the exchange of masked"),
        (down(MASKED, 1, named(1, 2, 2)), r"of clients \[1, 2, 3, 4\] \[1, 2, 2\] have stayed"),
        (down(MASKED, 1, named(1, 2, 5)), r"\[1, 2, 5\] have stayed"),
        (down(MASKED, 1, lambda body: body[1:]), "that have stayed are 7 bytes: 2 for each"),
        (down(KEYS, 1, other_keys), "names keys of client 1 that are not its own"),
        (down(KEYS, 1, lambda body: body[LISTED.size :]), "keys of client 1 that are not its own"),
        (down(KEYS, 1, lambda body: body[: 2 * LISTED.size]), "2 of 4 clients are left after"),
        (down(KEYS, 1, lambda body: body * 2), "one is named twice"),
        (down(KEYS, 1, lambda body: body[1:]), "the public keys are 263 bytes: 66 for each"),
        (down(SHARES, 1, lambda body: body * 2), "shares of client 1 twice, or unasked"),
        (down(SHARES, 1, lambda body: b"\7" + body[1:]), "shares of client 7 twice, or unasked"),
        (down(SHARES, 1, lambda body: body[2 + DEALT.size :]), "withheld the shares of client 1"),
        (down(SHARES, 1, lambda body: body[: 2 * (2 + DEALT.size)]), "2 of 4 clients are left"),
    ],
)  # fmt: skip
def test_a_client_ends_the_round_where_the_servers_answer_would_make_it_reveal_too_much(
    tamper, message
):
    terms = agreed(4)
    with pytest.raises(ValueError, match=message):
        Round(terms, data(terms), tamper=tamper).play()


# -- clients that lie, and messages nobody expected ----------------------------------------------
def up(exchange, change, number=2):
    """A client whose message of an exchange is another; `change` sees all of the exchange."""

    def tamper(direction, now, messages):
        if (direction, now) == ("up", exchange):
            messages[number] = change(messages)

    return tamper


def doubled(exchange):
    """Client 2 sends its message once more in the place of the next."""
    found = {}

    def tamper(direction, now, messages):
        if direction == "up" and now == exchange:
            found.update(messages)
        if direction == "up" and now == exchange + 1:
            messages[2] = found[2]

    return tamper


def flipped(place):
    """Client 2's message with one bit of its body another."""

    def change(messages):
        message = bytearray(messages[2])
        message[HEAD.size + place] ^= 1
        return bytes(message)

    return change


def of_another_round(exchange):
    """Client 2's message of that exchange, of a round before this one."""

    def change(messages):
        earlier = Round(agreed(4), data(agreed(4)))
        earlier.play()
        return earlier.messages[exchange][2]

    return up(exchange, change)


def addressed(messages):
    exchange, src, _, round_id = HEAD.unpack_from(messages[2])
    return pack(exchange, src, 3, round_id, messages[2][HEAD.size :])


def own(exchange, change):
    """Client 2's body, changed."""
    return up(exchange, lambda ms: ms[2][: HEAD.size] + change(ms[2][HEAD.size :]))


LIES = [
    (doubled(KEYS), "client 2 sent a message of the exchange 'keys' where one of 'shares' was due"),
    (doubled(SHARES), "client 2 sent a message of the exchange 'shares' where one of 'masked"),
    (doubled(MASKED), "client 2 sent .* 'masked vectors' where one of 'unmasking' was due: it"),
    (up(SHARES, lambda ms: b"\x09" + ms[2][1:]), "client 2 sent a message of the exchange 'numb"),
    *((of_another_round(e), f"client 2 sent a message of '{EXCHANGES[e]}' of another round")
      for e in (SHARES, MASKED, UNMASKING)),
    (of_another_round(KEYS), "the server names keys of client 2 that are not its own"),
    *((up(e, lambda ms: ms[3]), "client 2 sent a message from client 3 to the server, where one fr")
      for e in range(4)),
    *((up(e, addressed), "client 2 sent a message from client 2 to client 3, where")
      for e in range(4)),
    (up(MASKED, lambda ms: b"x"), "client 2 sent 1 bytes, too few for a message"),
    (own(KEYS, lambda body: bytes(KEY) + body[KEY:]), "client 2's 0000.* is not an X25519 key"),
    (own(SHARES, lambda body: body[1:]), "client 2's shares are 583 bytes: 146 for each of 4"),
    (up(SHARES, flipped(DEALT.size - 1)), "client 2's shares for client 1 do not verify"),
    (up(SHARES, flipped(2 * DEALT.size)), "client 2's share of its mask key for client 3 does not"),
    (up(SHARES, flipped(3 * DEALT.size + 32)), "client 2's share of its self-mask for client 4"),
    (own(MASKED, lambda body: body[4:]), "client 2's masked vector is 8 bytes: 4 for each of 3"),
    (own(UNMASKING, lambda body: body[WIDTH:]), "client 2 reveals 3 shares: 4 were due"),
    (own(UNMASKING, lambda body: body[1:]), "client 2's shares are 131 bytes: 33 for each"),
    (up(UNMASKING, flipped(2 * WIDTH)), "client 2's share of client 3's self-mask does not verify"),
]  # fmt: skip


@pytest.mark.parametrize(("tamper", "message"), LIES, ids=[each[1][:60] for each in LIES])
def test_a_message_that_is_not_as_it_should_be_ends_the_round_and_names_its_client(tamper, message):
    terms = agreed(4)
    with pytest.raises(ValueError, match=message):
        Round(terms, data(terms), tamper=tamper).play()


def test_shares_that_recover_nothing_are_their_dealers(monkeypatch):
    terms, deal = agreed(4), clients.deal
    share = clients.share

    def dealt(wrong):
        def spoilt(secrets, number, *rest):
            with monkeypatch.context() as patch:
                if number == 2:
                    patch.setattr(clients, "share", wrong)
                return deal(secrets, number, *rest)

        monkeypatch.setattr(clients, "deal", spoilt)
        return Round(terms, data(terms))

    def uneven(secret, n, k):
        first, *others = share(secret, n, k)
        return [first._replace(y=first.y ^ 1), *others]

    with pytest.raises(ValueError, match="client 2 has dealt shares that do not recover its self-"):
        dealt(uneven).play()
    wrong_key = dealt(lambda secret, n, k: share(b"k" * KEY, n, k))
    with pytest.raises(ValueError, match="client 2 has .* its mask key: they give another key"):
        wrong_key.play([NOBODY, NOBODY, {2}, NOBODY])


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (torch.tensor([0.0, float("nan"), 1.0]), "client 2's vector is nan in element 1"),
        (torch.tensor([0.0, 1.0, -float("inf")]), "client 2's vector is -inf in element 2"),
        (torch.tensor([1, 2, 3]), "client 2's vector is of torch.int64: use a float dtype"),
    ],
)
def test_a_vector_that_has_no_sum_is_its_clients(vector, message):
    with pytest.raises(ValueError, match=message):
        Round(agreed(3), {**data(agreed(3)), 2: vector}).play()


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (agreed(1), "of 1 client hides nothing: a sum of one is its vector; use 2 clients or more"),
        (agreed(0), "of 0 clients hides nothing"),
        (agreed(4, 2), "threshold=2 of 4 clients: .*; use 3 to 4"),
        (agreed(5, 2), "threshold=2 of 5 clients: .*; use 3 to 5"),
        (agreed(4, 9), "threshold=9 is more than the 4 clients that take part: use 3 to 4"),
        (agreed(4, 3.5), "threshold=3.5 is not a number of clients: use 3 to 4"),
        (agreed(4, bits=63), "bits=63: .* use up to 62"),
        (agreed(4, bits=32.0), "bits=32.0"),
        (agreed(4, clip=0.0), "clip=0.0 bounds no value"),
        (agreed(4, clip=float("nan")), "clip=nan"),
        (agreed(4, clip=float("inf")), "clip=inf"),
        (agreed(4, clip=1e6), r"4 clients with values up to clip=1e\+06 add up to 4e\+06, either "
         r"sign: in steps of 2\^-16 that takes 39 bits, and bits=32. Use bits=39 or more or clip="),
        (agreed(8, bits=4), "add up to 8, .* takes 21 bits, and bits=4. Use bits=21 or more.$"),
        (agreed(8, bits=62, clip=1e18), "clip=4398046511103 or less.$"),
    ],
)  # fmt: skip
def test_terms_under_which_the_sum_hides_nothing_or_is_wrong_are_refused(terms, message):
    with pytest.raises(ValueError, match=message):
        terms.check()


def test_what_the_refusal_of_a_modulus_offers_is_enough_and_just_so():
    for n, bits, clip in ((4, 32, 1e6), (7, 20, 3.3), (8, 4, 1.0), (3, 40, 2.0**33)):
        with pytest.raises(ValueError) as caught:
            agreed(n, bits=bits, clip=clip).check()
        offered = str(caught.value).partition("Use ")[2]
        wanted = int(offered.partition("bits=")[2].split()[0])
        agreed(n, bits=wanted, clip=clip).check()
        with pytest.raises(ValueError):
            agreed(n, bits=wanted - 1, clip=clip).check()
        if "clip=" in offered:
            most = float(offered.partition("clip=")[2].split()[0])
            agreed(n, bits=bits, clip=most).check()
            with pytest.raises(ValueError):
                agreed(n, bits=bits, clip=most + 1).check()


@pytest.mark.parametrize("gone", [NOBODY, frozenset({2})])
def test_the_server_gets_shares_of_one_secret_of_each_client(gone):
    """Of the key to the masks of who has stayed it has not one share, so that it could not make
    its masks if all clients but this one helped it."""
    terms, drawn = agreed(4), []

    def draw(count):
        drawn.append(os.urandom(count))
        return drawn[-1]

    played = Round(terms, data(terms), draw)
    played.play([NOBODY, NOBODY, gone, NOBODY])
    keys, self_masks = drawn[::3], drawn[1::3]
    revealed = revealed_in(played)
    for dealer in range(1, 5):
        shares = [Share(h, values[dealer], 3, KEY) for h, values in revealed.items()]
        other, one = (self_masks, keys) if dealer in gone else (keys, self_masks)
        assert recover(shares) == one[dealer - 1] != other[dealer - 1]

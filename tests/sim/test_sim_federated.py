"""A round of federated averaging in closed form, against all draws, the protocol and real noise."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dlviz.federated import Arrivals
from dlviz.federated.secure.fixed_point import FixedPoint
from dlviz.federated.secure.terms import Terms
from dlviz.sim.federated import (
    client_bytes,
    client_seconds,
    largest_clip,
    local_steps,
    noise_length,
    poisson_round_seconds,
    round_seconds,
    secure_client_bytes,
    secure_sum_bytes,
)

SECONDS = [3.0, 0.5, 7.0, 2.0, 2.0]


@pytest.mark.parametrize("deadline", [math.inf, 2.5, 0.1])
@pytest.mark.parametrize("drawn", range(1, len(SECONDS) + 1))
def test_a_round_lasts_as_long_as_the_slowest_drawn_in_the_mean_over_all_draws(drawn, deadline):
    lasts = [min(max(some), deadline) for some in itertools.combinations(SECONDS, drawn)]
    assert round_seconds(SECONDS, drawn, deadline) == pytest.approx(np.mean(lasts))


@pytest.mark.parametrize("deadline", [math.inf, 2.5])
@pytest.mark.parametrize("chance", [0.1, 0.5, 1.0])
def test_a_poisson_round_lasts_the_mean_over_all_subsets_and_nothing_where_nobody_is_drawn(
    chance, deadline
):
    lasts = 0.0
    for of in itertools.product((False, True), repeat=len(SECONDS)):
        some = [*itertools.compress(SECONDS, of)]
        weight = chance ** len(some) * (1 - chance) ** (len(SECONDS) - len(some))
        lasts += weight * min(max(some, default=0.0), deadline)
    assert poisson_round_seconds(SECONDS, chance, deadline) == pytest.approx(lasts)


def test_updates_of_half_the_bits_are_half_as_long_and_weights_stay_float32():
    assert client_bytes(2410) == (9640, 9640, 0) and client_bytes(2410, 16) == (9640, 4820, 0)


@pytest.mark.parametrize("bits", [16, 32, 48])
def test_a_secure_sum_sends_the_terms_that_the_clients_agree_on(bits):
    """The bytes of real rounds are held to the same numbers in tests/federated/."""
    text = str(Terms((41,), "float32", 5, 3, 16.0, bits))
    word = 4 if bits <= 32 else 8
    sends, gets = secure_sum_bytes(41, 5, 3, 16.0, bits)
    assert (sends - word * 41 - len(text), gets) == (179 * 5 + 148, 216 * 5 + 84)


def test_what_a_secure_round_sends_and_gets_is_all_that_it_has():
    each = secure_client_bytes(40, 5, 3, 16.0)
    assert each.back == 4 * 41 and each.out == 4 * 40
    assert each.back + each.beside == sum(secure_sum_bytes(41, 5, 3, 16.0))


@pytest.mark.parametrize(
    ("examples", "epochs", "batch", "steps"),
    [(10, 1, 10, 1), (11, 1, 10, 2), (11, 3, 10, 6), (11, 3, None, 3), (0, 5, None, 0)],
)
def test_a_client_makes_a_step_for_each_batch_that_it_has_begun(examples, epochs, batch, steps):
    assert local_steps(examples, epochs, batch) == steps


@pytest.mark.parametrize(("clients", "bits"), [(2, 32), (7, 32), (50, 32), (3, 48)])
def test_the_largest_clip_is_the_last_that_a_secure_sum_takes(clients, bits):
    most = largest_clip(clients, bits)
    FixedPoint(clients, float(most), bits).check()
    with pytest.raises(ValueError, match=f"clip={most} or less"):
        FixedPoint(clients, most + 1.0, bits).check()
    assert largest_clip(2, 16) == 0  # not even 1


def test_a_client_answers_after_its_exchanges_bytes_and_steps():
    link = {"latency": 0.01, "bandwidth": 1e6}
    assert client_seconds(5, 20_000, step=0.02, **link) == pytest.approx(0.02 + 0.02 + 0.1)
    assert client_seconds(5, 20_000, step=0.02, exchanges=4, **link) == pytest.approx(0.2)
    assert client_seconds(5, 20_000, step=0.02) == pytest.approx(0.1)
    modelled = Arrivals(0.02, [1.0, 3.0], **link).seconds(1, 5, 20_000)
    assert client_seconds(5, 20_000, step=0.06, **link) == pytest.approx(modelled)
    with pytest.raises(ValueError, match="bandwidth=0 bytes/s sends nothing"):
        client_seconds(5, 20_000, step=0.02, bandwidth=0.0)


def test_the_noise_is_as_long_as_what_is_drawn():
    clip, sigma, drawn = 0.5, 2.0, 10
    noise = np.random.default_rng(0).normal(0, sigma * clip, size=(20, 2410)) / drawn
    length = np.linalg.norm(noise, axis=1).mean() / clip
    assert noise_length(sigma, 2410, drawn) == pytest.approx(length, rel=0.01)

"""dlviz.federated.privacy: epsilon by its accountant, and the noise that it speaks of."""

from __future__ import annotations

import math
import runpy
import time
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from timing import attempts

from dlviz.federated import epsilon
from dlviz.federated.accountant import ORDERS, renyi
from dlviz.federated.privacy import central, clip, local, poisson


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


# --- epsilon


def test_epsilon_is_that_of_published_runs():
    assert epsilon(1.5, 0.04, 2250, 1e-5) == pytest.approx(7.32911, abs=5e-6)
    assert epsilon(4.0, 0.01, 10_000, 1e-5) == pytest.approx(1.03549, abs=5e-6)
    assert epsilon(4.0, 0.01, 10_000, 1e-5, "classical") == pytest.approx(1.25857, abs=5e-6)


# Of 1, 100 and 5,000 rounds at delta = 1e-5, by (noise multiplier, sample rate). Source: Opacus
# 1.6.0, RDPAccountant, with the orders that it has.
OPACUS = {
    (0.5, 0.001): (2.835610329, 3.59811321, 5.535898385),
    (0.5, 0.01): (4.395180134, 8.030725353, 31.97405668),
    (0.5, 0.1): (7.35527276, 35.2253844, 459.4577221),
    (0.5, 0.5): (9.721757109, 146.7161167, 4074.937155),
    (0.5, 1.0): (10.7255097, 294.8612601, 11111.77826),
    (1.0, 0.001): (0.6087728218, 0.6360525446, 0.7266407512),
    (1.0, 0.01): (0.9555491477, 1.214145211, 4.588969461),
    (1.0, 0.1): (2.133005995, 7.899255002, 79.78926941),
    (1.0, 0.5): (3.893575878, 42.86520221, 892.430636),
    (1.0, 1.0): (4.728507067, 96.11630843, 2861.778258),
    (2.0, 0.001): (0.1206546594, 0.1217781522, 0.1622706652),
    (2.0, 0.01): (0.1935781531, 0.2571292377, 1.613129631),
    (2.0, 0.1): (0.5259327242, 2.580568809, 24.01510886),
    (2.0, 0.5): (1.522800198, 15.39246419, 249.2094333),
    (2.0, 1.0): (2.165715659, 35.08175402, 799.2782576),
    (8.0, 0.001): (0.1028677477, 0.1029169044, 0.105349911),
    (8.0, 0.01): (0.1029173367, 0.1078758048, 0.3310356204),
    (8.0, 0.1): (0.1083136321, 0.491169162, 4.137206006),
    (8.0, 0.5): (0.2555154849, 2.821818381, 29.77261975),
    (8.0, 1.0): (0.4775539008, 6.122757865, 79.71005843),
}


@pytest.mark.parametrize(("sigma", "q"), OPACUS)
def test_epsilon_is_that_of_opacus(sigma, q):
    found = [epsilon(sigma, q, steps, 1e-5) for steps in (1, 100, 5000)]
    assert found == pytest.approx(OPACUS[sigma, q], rel=1e-8)


def test_epsilon_is_that_of_an_installed_opacus():
    """Its one module of formulas: the package takes seconds to load."""
    (root,) = find_spec("opacus").submodule_search_locations
    analysis = runpy.run_path(f"{root}/accountants/analysis/rdp.py")
    orders = ORDERS.tolist()
    for sigma, q, steps in ((0.7, 0.02, 1), (0.7, 0.3, 300), (3.0, 0.02, 300), (3.0, 0.3, 1)):
        spent = analysis["compute_rdp"](q=q, noise_multiplier=sigma, steps=steps, orders=orders)
        theirs, _ = analysis["get_privacy_spent"](orders=orders, rdp=spent, delta=1e-6)
        assert epsilon(sigma, q, steps, 1e-6) == pytest.approx(theirs, rel=1e-8)


def log_densities(sigma, q, points=40_001):
    """log p0, log p and the step of a grid on which both are there: p0 the noise alone, p the
    mixture with one client who takes part with probability q."""
    edge = 15 * sigma
    z, step = np.linspace(-edge, ORDERS[-1].item() + edge, points, retstep=True)
    norm = math.log(sigma * math.sqrt(2 * math.pi))
    log_p0 = -(z**2) / (2 * sigma**2) - norm
    with np.errstate(divide="ignore"):
        mixture = np.logaddexp(
            np.log1p(-q) + log_p0, math.log(q) - (z - 1) ** 2 / (2 * sigma**2) - norm
        )
    return log_p0, mixture, step


@pytest.mark.parametrize("q", [1e-3, 0.04, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0, 30.0])
def test_a_rounds_divergence_is_the_moment_integrated_numerically(sigma, q):
    log_p0, log_p, step = log_densities(sigma, q)
    found = renyi(sigma, q)
    for index in range(0, len(ORDERS), 7):
        a = ORDERS[index].item()
        logs = log_p0 + a * (log_p - log_p0)
        moment = logs.max() + math.log(np.exp(logs - logs.max()).sum() * step)
        assert found[index].item() * (a - 1) == pytest.approx(moment, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("conversion", ["improved", "classical"])
@pytest.mark.parametrize(("sigma", "q"), [(0.5, 0.3), (1.0, 0.04), (1.0, 1.0), (4.0, 0.5)])
def test_one_round_loses_no_more_than_epsilon_and_delta_say(sigma, q, conversion):
    log_p0, log_p, step = log_densities(sigma, q)
    bound = epsilon(sigma, q, 1, 1e-5, conversion)
    for one, other in ((log_p, log_p0), (log_p0, log_p)):  # who took part is left out, or added
        beyond = np.maximum(0, np.exp(one) - np.exp(bound + other)).sum() * step
        assert beyond <= 1e-5


def test_the_improved_conversion_is_never_above_the_classical():
    for sigma in (0.5, 1.0, 4.0, 20.0):
        for q in (0.01, 0.2, 1.0):
            for steps in (1, 100, 10_000):
                better = epsilon(sigma, q, steps, 1e-6)
                assert 0 < better < epsilon(sigma, q, steps, 1e-6, "classical")


def test_epsilon_grows_with_rounds_and_rate_and_falls_with_noise_and_delta():
    base = epsilon(1.0, 0.1, 100, 1e-5)
    assert epsilon(1.0, 0.1, 200, 1e-5) > base < epsilon(1.0, 0.2, 100, 1e-5)
    assert epsilon(2.0, 0.1, 100, 1e-5) < base > epsilon(1.0, 0.1, 100, 1e-4)
    assert epsilon(0.5, 0.1, 100, 1e-5) > 2 * base  # half the noise costs more than twice


def test_nothing_published_costs_nothing_and_no_noise_hides_nothing():
    assert epsilon(1.0, 0.1, 0, 1e-5) == epsilon(1.0, 0.0, 10, 1e-5) == 0.0
    assert epsilon(0.0, 0.1, 10, 1e-5) == math.inf
    assert epsilon(1e4, 1e-3, 1, 0.9) == 0.0  # a bound below 0 says no more than 0


def test_epsilon_takes_less_than_a_fifth_of_a_second():
    for attempt in attempts():
        renyi.cache_clear()
        start = time.process_time()
        epsilon(1.5, 0.04, 2250, 1e-5)
        took = time.process_time() - start
        with attempt:
            assert took < 0.2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1.0, 0.1, 10, 1e-5), r"noise_multiplier=-1\.0 is not a noise level"),
        ((math.nan, 0.1, 10, 1e-5), "noise_multiplier=nan is not a noise level"),
        ((1.0, 1.5, 10, 1e-5), r"sample_rate=1\.5 is not a probability"),
        ((1.0, 0.1, -1, 1e-5), "steps=-1 has to be a whole number, 0 or more"),
        ((1.0, 0.1, 1.5, 1e-5), r"steps=1\.5 has to be a whole number, 0 or more"),
        ((1.0, 0.1, 10, 0.0), r"delta=0\.0 is not a probability between 0 and 1"),
        ((1.0, 0.1, 10, 1e-5, "best"), "conversion='best' is not known: use 'improved' or"),
    ],
)
def test_epsilon_of_numbers_out_of_range_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        epsilon(*arguments)


def test_a_delta_of_one_client_in_all_is_refused():
    with pytest.raises(
        ValueError, match=r"delta=0\.001 is not below 1/1000, .* Use less than 0\.001"
    ):
        epsilon(1.0, 0.1, 10, 1e-3, clients=1000)
    assert epsilon(1.0, 0.1, 10, 0.999e-3, clients=1000) == epsilon(1.0, 0.1, 10, 0.999e-3)


# --- clipping


def test_a_long_update_is_shortened_to_the_bound_and_a_short_one_left_as_it_is():
    updates = torch.randn(4, 1000, dtype=torch.float64, generator=seeded())
    norms = torch.tensor([0.0, 0.5, 2.0, 1e100], dtype=torch.float64)
    updates *= (norms / updates.norm(dim=1))[:, None]
    short = clip(updates, 1.0)
    torch.testing.assert_close(short.norm(dim=1), norms.clamp(max=1))
    assert torch.equal(short[:2], updates[:2])
    cosine = torch.nn.functional.cosine_similarity(short[2], updates[2], dim=0)
    assert cosine.item() == pytest.approx(1)


def test_a_norm_beyond_the_range_of_float32_is_clipped_as_well():
    update = torch.full((100,), 1e30)
    assert clip(update, 2.0).norm().item() == pytest.approx(2.0)


@pytest.mark.parametrize("bound", [0, -1.0, math.nan])
def test_a_bound_that_is_no_norm_is_refused(bound):
    with pytest.raises(ValueError, match=f"bound={bound} is not a norm"):
        clip(torch.ones(3), bound)


# --- noise

SIGMA, BOUND, RATE, CLIENTS = 1.5, 0.4, 0.1, 100
OPTIONS = {
    "bound": BOUND,
    "noise_multiplier": SIGMA,
    "sample_rate": RATE,
    "clients": CLIENTS,
}


def right(updates, generator):
    return central(updates, torch.ones(len(updates)), generator=generator, **OPTIONS)


def noise_on_the_mean(updates, generator):
    noise = torch.randn(updates.shape[1], generator=generator)
    return clip(updates, BOUND).sum(0) / len(updates) + SIGMA * BOUND * noise


def noise_on_each_client(updates, generator):
    noise = torch.randn(updates.shape, generator=generator)
    return (clip(updates, BOUND) + SIGMA * BOUND * noise).sum(0) / (RATE * CLIENTS)


def divided_by_who_came(updates, generator):
    noise = torch.randn(updates.shape[1], generator=generator)
    return (clip(updates, BOUND).sum(0) + SIGMA * BOUND * noise) / max(1, len(updates))


def noise_as_claimed(combine):
    """Whether the noise on an update of nothing is N(0, (sigma S / q N)^2), whoever came."""
    for came in (0, 1, 7, 30):
        noise = combine(torch.zeros(came, 100_000), seeded(came))
        claimed = SIGMA * BOUND / (RATE * CLIENTS)
        if abs(noise.std().item() / claimed - 1) > 0.01:  # its standard error is 0.0022
            return False
        if abs(noise.mean().item()) > 4 * claimed / math.sqrt(100_000):
            return False
    return True


def test_the_noise_is_sigma_times_the_bound_on_the_sum_whoever_came():
    assert noise_as_claimed(right)


@pytest.mark.parametrize(
    "wrong",
    [noise_on_the_mean, noise_on_each_client, divided_by_who_came],
    ids=lambda f: f.__name__,
)
def test_noise_in_another_place_is_seen(wrong):
    assert not noise_as_claimed(wrong)


def test_the_noise_is_gaussian_and_another_in_every_round():
    generator = seeded()
    first, second = (right(torch.zeros(3, 100_000), generator) for _ in range(2))
    share = (first.abs() < first.std()).double().mean().item()
    assert share == pytest.approx(0.6827, abs=0.006)
    assert (first.abs() > 3 * first.std()).double().mean().item() == pytest.approx(2.7e-3, abs=1e-3)
    assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1].item()) < 0.015


def test_one_client_moves_a_round_by_the_bound_over_those_expected_at_most():
    silent = {**OPTIONS, "noise_multiplier": 0.0}
    updates = 100 * torch.randn(8, 50, dtype=torch.float64, generator=seeded())
    combine = partial(central, generator=seeded(), **silent)
    whole = combine(updates, torch.ones(8))
    for left_out in range(8):
        rest = torch.cat([updates[:left_out], updates[left_out + 1 :]])
        moved = (whole - combine(rest, torch.ones(7))).norm().item()
        assert moved == pytest.approx(BOUND / (RATE * CLIENTS))


def test_without_noise_it_is_the_sum_over_those_expected_whatever_they_weigh():
    updates = torch.randn(4, 30, dtype=torch.float64, generator=seeded())
    combine = partial(
        central, generator=seeded(), **{**OPTIONS, "noise_multiplier": 0, "bound": 1e9}
    )
    for weights in (torch.ones(4), torch.tensor([1.0, 5.0, 100.0, 0.0])):
        torch.testing.assert_close(combine(updates, weights), updates.sum(0) / 10)


def test_a_client_that_noises_its_own_update_adds_sigma_times_the_bound():
    options = {"bound": BOUND, "noise_multiplier": SIGMA}
    sent = local(torch.zeros(25, 40_000), generator=seeded(), **options)
    torch.testing.assert_close(sent.std(1), torch.full((25,), SIGMA * BOUND), rtol=0.02, atol=0)
    assert sent.mean(0).std().item() == pytest.approx(SIGMA * BOUND / 5, rel=0.02)
    long = torch.full((40_000,), 3.0)
    left = local(long, generator=seeded(), **options) - local(
        0 * long, generator=seeded(), **options
    )
    assert left.norm().item() == pytest.approx(BOUND, rel=1e-3)


# --- selection


def test_every_client_takes_part_on_its_own_with_the_probability_claimed():
    generator, rounds = seeded(), 2000
    drawn = torch.zeros(rounds, 50)
    for row in drawn:
        row[poisson(50, 0.2, generator)] = 1
    shares = drawn.mean(0)
    assert (shares - 0.2).abs().max().item() < 4.5 * math.sqrt(0.2 * 0.8 / rounds)
    assert drawn.sum(1).var().item() == pytest.approx(50 * 0.2 * 0.8, rel=0.15)  # 0 if n are drawn
    correlation = torch.corrcoef(drawn.T) - torch.eye(50)
    assert correlation.abs().max().item() < 0.12


def test_all_or_nobody_may_be_drawn():
    assert poisson(5, 1.0, seeded()).tolist() == [0, 1, 2, 3, 4]
    assert poisson(5, 0.0, seeded()).tolist() == []
    assert poisson(40, 0.5, seeded(3)).tolist() == poisson(40, 0.5, seeded(3)).tolist()

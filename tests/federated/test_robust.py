"""dlviz.federated.robust by hand and by properties, and against dlviz.federated.attacks."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlviz.federated import attacks
from dlviz.federated.robust import (
    krum,
    mean,
    median,
    multi_krum,
    nearest,
    norm_bounded,
    rules,
    trimmed_mean,
)


def column(*values):
    """Updates of one parameter, one from each client."""
    return torch.tensor(values, dtype=torch.float64)[:, None]


def equal(updates):
    return torch.ones(len(updates))


def combined(combine, *values, **options):
    updates = column(*values)
    return combine(updates, equal(updates), **options).item()


# --- by hand


def test_the_mean_weighs_each_client_by_its_examples():
    assert mean(column(2.0, 1.0, 2.0), torch.tensor([1, 2, 1])).item() == 1.5
    assert mean(column(4.0, 7.0), torch.tensor([3, 0])).item() == 4.0


def test_the_median_is_taken_for_each_parameter_alone():
    updates = torch.tensor([[1.0, -9.0], [5.0, 0.0], [2.0, 3.0]])
    assert median(updates, equal(updates)).tolist() == [2.0, 0.0]
    assert combined(median, 3, 1, 2, 100) == 2.5  # of four, between the middle two
    assert combined(median, 1, 1, 1, -8, 50) == 1
    assert combined(median, 7) == 7
    assert (
        median(column(1, 2, 9), torch.tensor([1.0, 1.0, 500.0])).item() == 2
    )  # weights are claims


def test_the_trimmed_mean_leaves_out_the_ends_of_each_parameter():
    assert combined(trimmed_mean, -3, 1, 1, 2, 90, attackers=1) == pytest.approx(4 / 3)
    assert combined(trimmed_mean, -3, 1, 1, 2, 90, attackers=2) == 1
    assert combined(trimmed_mean, 4, 4, 4, 1, 9, attackers=1) == 4  # ties: one of the 4s is cut
    assert combined(trimmed_mean, 1, 2, 6, attackers=0) == 3
    updates = torch.tensor([[1.0, 90.0], [2.0, 5.0], [80.0, 4.0]])
    assert trimmed_mean(updates, equal(updates), attackers=1).tolist() == [2.0, 5.0]


def test_krum_takes_the_one_update_whose_neighbours_are_nearest():
    # n = 5, f = 1: two neighbours each. Squares: 0 and 1, 0 and 1, 1 and 1, 16 and 25, far
    assert combined(krum, 1, 1, 2, -3, 90, attackers=1) == 1
    # n = 5, f = 1. 8: 4 + 16, 6: 4 + 4, 4: 4 + 4, 2: 4 + 16: of the two best the first
    assert combined(krum, 8, 6, 4, 2, 100, attackers=1) == 6
    assert combined(krum, 100, 4, 2, 6, 8, attackers=1) == 4
    updates = torch.tensor([[0.0, 3.0], [0.0, 0.0], [50.0, 50.0], [4.0, 0.0], [1.0, 1.0]])
    # (1, 1): 2 + 5 = 7; (0, 0): 2 + 9; (0, 3): 5 + 9; (4, 0): 10 + 16
    assert krum(updates, equal(updates), attackers=1).tolist() == [1.0, 1.0]


def test_multi_krum_is_the_mean_of_the_best_n_minus_f_minus_2():
    assert combined(multi_krum, 1, 1, 2, -3, 90, attackers=1) == 1  # the two 1s
    # scores 4 + 16, 4 + 4, 4 + 4, 4 + 16, far: 6 and 4
    assert combined(multi_krum, 8, 6, 4, 2, 100, attackers=1) == 5
    assert combined(multi_krum, 0, 1, 2, attackers=0) == 0  # one of three alike: the first
    # n = 4, f = 0, two neighbours: 0: 0 + 4, 0: 0 + 4, 2: 4 + 4, 9: 49 + 81
    assert combined(multi_krum, 9, 2, 0, 0, attackers=0) == 0


def test_a_bounded_norm_is_the_mean_of_short_updates():
    updates = torch.tensor([[3.0, 4.0], [0.0, 1.0], [-30.0, -40.0]])
    found = norm_bounded(updates, torch.tensor([1.0, 2.0, 1.0]), bound=2.0)
    torch.testing.assert_close(found, torch.tensor([0.0, 0.5]))
    torch.testing.assert_close(norm_bounded(updates, equal(updates), bound=99.0), updates.mean(0))


# --- attackers among ten

HONEST, SPREAD = 3.0, 0.1


def round_of_ten(attackers, attack, seed=0):
    """Updates of ten clients, all near (3, 3, ...), the first `attackers` of them attacked; the
    mean of the honest."""
    generator = torch.Generator().manual_seed(seed)
    updates = HONEST + SPREAD * torch.randn(10, 20, dtype=torch.float64, generator=generator)
    honest = updates[attackers:].mean(0)
    updates[:attackers] = attack(updates[:attackers])
    return updates, honest


ATTACKS = {
    "sign_flip": attacks.sign_flip,
    "scale by -10": partial(attacks.scale, factor=-10),
    "scale by 1e6": partial(attacks.scale, factor=1e6),
}
TOLERATES = {"median": (median, 4), "trimmed_mean": (trimmed_mean, 4)}
TOLERATES |= {"krum": (krum, 3), "multi_krum": (multi_krum, 3)}


@pytest.mark.parametrize("attackers", range(5))
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("name", TOLERATES)
def test_of_ten_clients_as_many_as_are_tolerated_do_no_harm(name, attack, attackers):
    combine, most = TOLERATES[name]
    options = {} if combine is median else {"attackers": attackers}
    updates, honest = round_of_ten(attackers, ATTACKS[attack])
    if attackers > most:
        message = (
            rf"{name} with attackers=4 needs 2f \+ 3 clients; 10 came, which tolerate 3 at most"
        )
        with pytest.raises(ValueError, match=message):
            combine(updates, equal(updates), **options)
        return
    found = combine(updates, equal(updates), **options)
    assert (found - honest).abs().max().item() < 4 * SPREAD
    if attackers:
        harmed = mean(updates, equal(updates)) - honest
        assert harmed.abs().min().item() > 5 * SPREAD


@pytest.mark.parametrize("attackers", range(1, 5))
def test_a_bound_holds_back_scaling_and_not_a_flipped_sign(attackers):
    bound = HONEST * 20**0.5  # about that of an honest update
    for factor, harm in ((1e6, 0.05), (-1e6, 2.0)):
        updates, honest = round_of_ten(attackers, partial(attacks.scale, factor=factor))
        found = norm_bounded(updates, equal(updates), bound=bound)
        moved = (found - honest).norm().item()
        assert moved <= attackers / 10 * 2 * bound * 1.05
        assert moved == pytest.approx(harm * attackers / 10 * bound, abs=0.05 * bound)


def test_one_scaled_update_undoes_the_work_of_all_others():
    updates = torch.ones(10, 3)
    updates[0] = attacks.scale(updates[0], -10)
    assert (mean(updates, equal(updates)) < 0).all()


def test_krum_throws_out_an_honest_client_whose_data_are_its_own():
    updates = torch.zeros(9, 2).double()
    updates += 0.01 * torch.arange(18).view(9, 2)
    updates[8] = torch.tensor([5.0, 0.0])  # alone with its labels
    averaged = multi_krum(updates, equal(updates), attackers=1)
    assert averaged[0].item() < 0.2 < updates.mean(0)[0].item()


# --- attacks


def test_flipped_labels_change_places_and_flip_back():
    labels = torch.arange(10)
    assert attacks.flip_labels(labels, 10).tolist() == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert torch.equal(attacks.flip_labels(attacks.flip_labels(labels, 12), 12), labels)
    assert attacks.flip_labels(labels[:0], 10).tolist() == []
    with pytest.raises(ValueError, match=r"reach from 0 to 9, outside 0 to 8: give classes=10"):
        attacks.flip_labels(labels, 9)


def test_an_attack_leaves_the_honest_update_as_it_was():
    update = torch.tensor([1.0, -2.0])
    assert attacks.sign_flip(update).tolist() == [-1.0, 2.0]
    assert attacks.scale(update, -10).tolist() == [-10.0, 20.0]
    assert update.tolist() == [1.0, -2.0]


# --- what holds for any updates

EVERY = {
    "mean": mean,
    "median": median,
    "trimmed_mean": partial(trimmed_mean, attackers=1),
    "krum": partial(krum, attackers=1),
    "multi_krum": partial(multi_krum, attackers=1),
    "norm_bounded": partial(norm_bounded, bound=1e6),
}


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=30, deadline=None)
@given(clients=st.integers(5, 11), seed=st.integers(0, 999))
def test_order_place_and_scale_of_the_updates_do_not_matter(name, clients, seed):
    combine, generator = EVERY[name], torch.Generator().manual_seed(seed)
    updates = torch.randn(clients, 6, dtype=torch.float64, generator=generator)
    weights = equal(updates)
    before = updates.clone()
    found = combine(updates, weights)
    assert torch.equal(updates, before)
    shuffled = updates[torch.randperm(clients, generator=generator)]
    torch.testing.assert_close(combine(shuffled, weights), found)
    away = torch.randn(6, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(combine(-3 * updates + away, weights), -3 * found + away)
    same = updates[:1].expand(clients, -1)
    torch.testing.assert_close(combine(same, weights), updates[0])


@settings(max_examples=50, deadline=None)
@given(data=st.data(), clients=st.integers(3, 12))
def test_median_and_trimmed_mean_stay_among_the_honest_values(data, clients):
    numbers = st.floats(-1e6, 1e6)
    attackers = data.draw(st.integers(0, (clients - 1) // 2))
    drawn = data.draw(st.lists(numbers, min_size=clients, max_size=clients))
    updates = column(*drawn)
    honest = updates[attackers:]  # who is called honest is any n - f of them
    slack = 1e-9 * honest.abs().max().item()
    for combine in (median, partial(trimmed_mean, attackers=attackers)):
        found = combine(updates, equal(updates)).item()
        assert honest.min().item() - slack <= found <= honest.max().item() + slack


def test_without_attackers_the_trimmed_mean_is_the_mean():
    updates = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = trimmed_mean(updates, equal(updates), attackers=0)
    torch.testing.assert_close(found, updates.mean(0))


# --- refused


@pytest.mark.parametrize(
    ("name", "clients", "attackers", "message"),
    [
        (
            "krum",
            6,
            2,
            r"krum with attackers=2 needs 2f \+ 3 clients; 6 came, which tolerate 1 at most",
        ),
        ("krum", 2, 0, "2 came, which are too few even without any"),
        ("multi_krum", 4, 1, r"multi_krum with attackers=1 .* 4 came, which tolerate 0 at most"),
        (
            "trimmed_mean",
            4,
            2,
            r"trimmed_mean with attackers=2 needs 2f \+ 1 .* tolerate 1 at most",
        ),
        ("trimmed_mean", 4, -1, "attackers=-1 has to be a whole number, 0 or more"),
    ],
)
def test_more_attackers_than_are_tolerated_are_refused_with_their_number(
    name, clients, attackers, message
):
    combine = {"krum": krum, "multi_krum": multi_krum, "trimmed_mean": trimmed_mean}[name]
    with pytest.raises(ValueError, match=message):
        combine(torch.zeros(clients, 3), torch.ones(clients), attackers=attackers)


@pytest.mark.parametrize("name", EVERY)
def test_updates_that_cannot_be_combined_are_refused(name):
    combine, updates = EVERY[name], torch.zeros(6, 3)
    with pytest.raises(ValueError, match=r"updates of shape \(6, 3\) and weights of \(5,\) do not"):
        combine(updates, torch.ones(5))
    with pytest.raises(ValueError, match=r"updates of shape \(0, 3\) .* one client at least"):
        combine(updates[:0], torch.ones(0))
    with pytest.raises(ValueError, match=r"weights=\[.*\] are not numbers of examples"):
        combine(updates, torch.tensor([1.0, 1, 1, 1, 1, -1]))
    updates[2, 1], updates[4, 0] = torch.nan, torch.inf
    with pytest.raises(ValueError, match=r"the updates in rows \[2, 4\] hold NaN or Inf"):
        combine(updates, torch.ones(6))


def test_the_rules_by_name_are_those_of_the_module_with_so_many_attackers():
    updates = torch.randn(9, 5, generator=torch.Generator().manual_seed(1))
    ones = torch.ones(9)
    named = {name: rule(updates, ones) for name, rule in rules(2).items()}
    expected = {
        "mean": mean(updates, ones),
        "median": median(updates, ones),
        "trimmed mean": trimmed_mean(updates, ones, attackers=2),
        "Krum": krum(updates, ones, attackers=2),
    }
    assert named.keys() == expected.keys()
    assert all(torch.equal(named[name], update) for name, update in expected.items())


def test_the_nearest_update_is_the_one_that_krum_takes():
    updates = torch.randn(9, 5, generator=torch.Generator().manual_seed(1))
    row = nearest(updates, torch.ones(9), attackers=2)
    assert torch.equal(updates[row], krum(updates, torch.ones(9), attackers=2))
    with pytest.raises(ValueError, match=r"krum with attackers=4 needs 2f \+ 3"):
        nearest(updates, torch.ones(9), attackers=4)


def test_only_the_attackers_send_their_attack():
    outgoing = attacks.by({1, 3}, attacks.sign_flip)
    sent = [outgoing(torch.ones(2), client, 0).tolist() for client in range(4)]
    assert sent == [[1, 1], [-1, -1], [1, 1], [-1, -1]]

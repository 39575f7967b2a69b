"""Rounds with an epsilon: what they come to, what their records say, what is refused."""

import math
import re
from functools import partial

import pytest
from federated_oracle import dealt, gap, model

import dlviz
from dlviz.federated import Private, Secure, epsilon, privacy, train
from dlviz.federated.robust import median
from dlviz.federated.selection import generator

NOISE = Private(bound=0.5, noise_multiplier=1.5, delta=1e-3)
DRAWN = {"rounds": 4, "fraction": 0.3, "selection": "poisson", "seed": 7}


def both(comm):
    """The same rounds, once by `private` and once by a `combine` of one's own."""
    fields = {"bound": 0.5, "noise_multiplier": 1.5, "sample_rate": 0.3, "clients": 6}
    own = partial(privacy.central, generator=generator(7, "noise"), **fields)
    variants = {"private": NOISE}, {"combine": own}
    return [train(comm, model(), dealt(6), **DRAWN, **variant) for variant in variants]


def test_a_private_run_is_one_of_the_noised_sum_and_each_round_says_what_is_spent():
    private, plain = dlviz.launch(both, 2).results[0]
    assert gap(private["state"], plain["state"]) == 0
    assert gap(private["state"], model().state_dict()) > 0
    spent = [record.epsilon for record in private["rounds"]]
    assert spent == [epsilon(1.5, 0.3, t, 1e-3, clients=6) for t in (1, 2, 3, 4)]
    assert all(math.isnan(record.epsilon) for record in plain["rounds"])


def test_a_round_to_which_nobody_came_is_noised_and_counted():
    how = {**DRAWN, "rounds": 1, "fraction": 1e-9, "private": NOISE}
    end = dlviz.launch(train, 2, args=(model(), dealt(2)), kwargs=how).results[0]
    (record,) = end["rounds"]
    assert record.selected == [] and not record.unchanged and record.epsilon >= 0
    assert gap(end["state"], model().state_dict()) > 0


REFUSED = [
    ({"selection": "uniform"}, "selection='uniform' with private=: .* selection='poisson'"),
    ({"late_weight": 0.5}, "late_weight= with private=: a round is then not the sum"),
    ({"combine": median}, "combine= with private="),
    ({"secure": Secure(threshold=2, clip=64)}, "secure= with private="),
    ({"spare": 1}, "spare= with private="),
    ({"private": Private(1.0, 1.0, 0.5)}, r"delta=0\.5 is not below 1/2, one over the number"),
]


def test_rounds_of_which_epsilon_would_not_be_true_are_refused():
    def worker(comm):
        messages = []
        for options, _ in REFUSED:
            with pytest.raises(ValueError) as error:
                train(comm, model(), dealt(2), **{**DRAWN, "private": NOISE, **options})
            messages.append(str(error.value))
        return messages

    for messages in dlviz.launch(worker, 2).results:
        for words, (_, message) in zip(messages, REFUSED, strict=True):
            assert re.match(message, words), words


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((0.0, 1.0, 1e-5), r"bound=0\.0 is not a norm"),
        ((math.inf, 1.0, 1e-5), "bound=inf is not a norm"),
        ((1.0, -1.0, 1e-5), r"noise_multiplier=-1\.0 is not a noise level"),
        ((1.0, 1.0, 0.0), r"delta=0\.0 is not a probability"),
    ],
)
def test_numbers_that_are_no_bound_noise_or_delta_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Private(*fields)

"""The figures that lab 12b and its lecturers' page state: by formulas, from its own data, and from
the recorded trainings, of which one row of each study is made again."""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import nbformat
import pytest
import torch
from test_lab_12 import made_again

import dlviz
from dlviz.datasets import digits
from dlviz.federated import (
    Secure,
    attacks,
    epsilon,
    inversion,
    partition,
    privacy,
    received,
    robust,
    train_each,
)
from dlviz.federated.compared import Sweep, last_third, median_and_range, scores
from dlviz.models import MLP, accuracy
from dlviz.sim.federated import secure_sum_bytes

ROOT = Path(__file__).parents[2]
LAB = ROOT / "labs" / "12b_federated_privacy.ipynb"
TEXT = "\n".join(cell.source for cell in nbformat.read(LAB, as_version=4).cells)
PAGE = (ROOT / "docs" / "teaching" / f"{LAB.stem}.md").read_text()
SWEEP = Sweep.load(ROOT / "labs" / "recorded" / LAB.stem / "sweep.json")
NET = MLP((64, 32, 10))
ROW = 4 * 2410  # bytes of all weights
IMAGES, LABELS = digits("train")
TWENTY = partition.identical(LABELS, 20)
TWO = partition.by_label(LABELS, 10, per_client=2)
SAME = SWEEP.tuned("attackers", "identical", goal=math.inf)
APART = SWEEP.tuned("attackers", "two labels", goal=math.inf)
RULES = "mean", "median", "trimmed mean", "Krum"


def percent(ends: list[float]) -> list[float]:
    return [100 * end for end in ends]


def test_a_row_of_each_recorded_study_is_made_again():
    made_again("12b_federated_privacy", SWEEP, rounds=3)


def test_methods_that_are_compared_have_three_rates_or_more_and_five_seeds():
    for study, data in {(row["study"], row["data"]) for row in SWEEP.rows}:
        for name, runs in SWEEP.methods(study, data).items():
            alone = study in ("recovered", "false labels")  # the page says at which rate
            assert (len(runs) == 1) if alone else (len(runs) >= 3), (study, name)
            assert {len(seeds) for seeds in runs.values()} == {5}


# -- parts 1 and 2 ---------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def updates() -> dict[Any, torch.Tensor]:
    """The updates of twenty clients with 1 or 16 images: one epoch, five, clipped."""
    clip = {"outgoing": lambda update, client, number: privacy.clip(update, 0.001)}

    def each(comm: dlviz.Comm) -> Any:
        found = {}
        for count, name, how in ((1, "one", {}), (1, "five", {"epochs": 5}), (1, "clipped", clip),
                                 (16, "one", {})):  # fmt: skip
            clients = partition.dealt(IMAGES, LABELS, [part[:count] for part in TWENTY])
            rounds = received(comm, NET, clients, **how)
            found[count, name] = rounds and rounds[0]
        return found

    return dlviz.launch(each, 2).results[0]


def test_as_many_images_are_recovered_as_the_text_and_the_page_say(updates):
    for (count, name), rows in updates.items():
        counts = [
            inversion.recovered(NET, row, IMAGES[part[:count]])
            for row, part in zip(rows, TWENTY, strict=True)
        ]
        assert sum(counts) == (20 if count == 1 else 50), (count, name)
    lengths = updates[1, "one"].norm(dim=1)
    assert f"lengths of {lengths.min():.2f} to {lengths.max():.2f}" in PAGE
    assert updates[1, "clipped"].norm(dim=1).max() <= 0.001001
    assert 150 < lengths.mean() / 0.001 < 250 and "a two-hundredth of what it was" in TEXT
    place = [1, 2, 4, 8, 16, 32, 64].index(16)
    of_16 = [seed[place] for seed in SWEEP.methods("recovered", "20 clients")["E = 1"][0.1]]
    assert f"{min(of_16):.2f} to {max(of_16):.2f} with other initial weights" in PAGE
    assert 0.5 < min(of_16) and max(of_16) < 3.5 and "the server recovers one to three" in TEXT


def test_few_images_switch_on_some_of_the_units():
    on = (NET[:3](IMAGES) > 0).double().mean(0)  # (32,), fraction of the images
    assert (int((on < 0.06).sum()), int((on > 0.97).sum())) == (6, 5)
    assert "six are switched on by less than 6 % of all images, and five by more than 97 %" in PAGE


def test_the_bytes_of_a_secure_sum_are_those_of_the_text_and_the_page():
    sent = [secure_sum_bytes(2410, n, n // 2 + 1, 1.0)[0] for n in range(2, 101)]
    assert 100 * (sent[8 - 2] / ROW - 1) == pytest.approx(17.0, abs=0.05)
    terms = sent[8 - 2] - ROW - 179 * 8 - 148
    assert f"**17.0 %** = (179 · 8 + 148 + {terms}) / 9,640" in PAGE
    assert f"({2 + next(i for i, each in enumerate(sent) if each > 2 * ROW)}. " in PAGE
    assert 179 * 1000 == 179_000 and "179 kB for its masks and 10 kB for its update" in TEXT
    assert 179 * 100 + 200 == 18_100 and "18 kB, 2 %" in TEXT


# -- part 3 ----------------------------------------------------------------------------------------
def test_epsilon_is_what_the_text_and_the_page_say():
    loud, quiet = (epsilon(sigma, 0.1, 40, 1e-5, clients=1000) for sigma in (1, 2))
    assert f"**{loud:.2f}**, {loud / quiet:.1f} times the {quiet:.2f} of σ = 2" in PAGE
    assert f"With σ = 2 they spend at most ε = {quiet:.2f}" in TEXT
    assert f"Half the noise, {loud / quiet:.1f} times the ε" in TEXT
    assert f"e^5.39 = {math.exp(round(loud, 2)):.0f}" in PAGE and f"{math.exp(quiet):.0f}.)" in PAGE
    assert f"after four rounds σ = 2 has spent {epsilon(2, 0.1, 4, 1e-5):.2f}" in TEXT
    assert epsilon(4, 0.1, 40, 1e-5) == pytest.approx(epsilon(2, 0.1, 4, 1e-5), rel=0.05)
    assert f"**{epsilon(1, 0.01, 40, 1e-5, clients=10_000):.2f}**" in PAGE
    assert f"for an ε of {epsilon(1, 1, 12, 1e-5):.0f}, and a factor of e²¹" in TEXT
    assert math.exp(8) == pytest.approx(2981, abs=1) and "e⁸ = 2,981 times" in TEXT


def test_noise_costs_the_accuracy_that_the_text_says():
    found = SWEEP.tuned("noise", "1,000 clients")
    none, one, two, four = (100 * median(found[f"σ = {s}"].ends) for s in (0, 1, 2, 4))
    assert abs(one - none) < 1 and "σ = 1 ends as high as no noise" in TEXT
    assert round(none - two) == 4 and "σ = 2 four points lower" in TEXT
    assert f"only σ = 4 costs much, {none - four:.0f} points" in TEXT
    assert median(seed[3] for seed in found["σ = 2"].scores) < 1 / 3
    eight = SWEEP.tuned("noise of each", "eight clients")
    none, one = (100 * median(eight[f"σ = {s}"].ends) for s in (0, 1))
    assert f"σ = 1 takes {none - one:.0f} points" in TEXT


def test_masks_cost_18_percent_more_bytes_and_change_no_accuracy():
    alike = [part[:179] for part in partition.identical(LABELS, 8)]
    clients = partition.dealt(IMAGES, LABELS, alike)
    cases = {"open": (clients, {}), "masks": (clients, {"secure": Secure(5, 400.0)})}
    images, labels = digits("test")
    how = {"rounds": 2, "batch": 10, "evaluate": partial(accuracy, images=images, labels=labels)}
    plain, masked = dlviz.launch(train_each, 9, args=(NET, cases), kwargs=how).results[0].values()
    more = 100 * (masked["rounds"][0].nbytes / plain["rounds"][0].nbytes - 1)
    assert more == pytest.approx(18, abs=0.5) and "**bytes**, 18 % more a round" in TEXT
    assert scores(masked) == pytest.approx(scores(plain), abs=2 / 360)


# -- part 4 ----------------------------------------------------------------------------------------
def test_two_rules_withstand_four_attackers_and_one_is_enough_for_the_mean():
    ends = {name: percent(found.ends) for name, found in SAME.items()}
    standing = [name for name in RULES if median(ends[f"{name}, 4 of 10"]) >= 80]
    assert standing == ["median", "trimmed mean"] and "**2:** median and trimmed mean" in PAGE
    assert ends["median, 4 of 10"] == pytest.approx(ends["trimmed mean, 4 of 10"], abs=0.3)
    assert f"{median_and_range(ends['median, 4 of 10'])} % each" in PAGE
    assert max(ends["mean, 1 of 10"]) < 16 and "No better than a guess" in TEXT
    assert f"{median_and_range(ends['mean, 1 of 10'], 1)} over five seeds" in PAGE
    for name in RULES[1:]:
        assert min(ends[f"{name}, 1 of 10"]) > 90, "in the text: all three withstand one"


def test_where_data_differ_robust_rules_lose_what_the_text_and_the_page_say():
    ends = {name: percent(found.ends) for name, found in APART.items()}
    for name in RULES:
        row = [median_and_range(ends[f"{name}, {f} of 10"]) for f in (0, 1, 3, 4)]
        assert f"| {' | '.join([name, *row])} |" in PAGE
    krum = [end for f in (0, 1, 3) for end in ends[f"Krum, {f} of 10"]]
    assert 17 < min(krum) and max(krum) < 26 and "Krum recognises two labels of ten" in TEXT
    left = max(median(ends[f"{name}, 4 of 10"]) for name in RULES)
    assert f"no rule withstands four attackers: {left:.0f} % are left" in TEXT
    lost = median(ends["mean, 0 of 10"]) - median(ends["median, 0 of 10"])
    assert f"({lost:.0f} percentage points: two clients of ten" in PAGE
    one = {name: median(ends[f"{name}, 1 of 10"]) for name in RULES}
    assert max(one, key=one.get) == "trimmed mean" and "the trimmed mean loses least" in TEXT


def test_krum_tolerates_three_of_ten_and_its_two_clients_share_their_labels():
    updates = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    robust.krum(updates, torch.ones(10), attackers=3)
    with pytest.raises(ValueError, match=r"needs 2f \+ 3 clients; 10 came, which tolerate 3"):
        robust.krum(updates, torch.ones(10), attackers=4)
    assert "With **n ≥ 2f + 3**, the condition" in TEXT and "can tolerate three" in TEXT
    assert "10 came, which tolerate 3 at most" in LAB.read_text()  # what the cell has printed
    has = [set(LABELS[part].tolist()) for part in TWO]
    twins = [(i, j) for i in range(10) for j in range(i) if has[i] == has[j]]
    assert twins == [(4, 0)] and has[0] == {0, 7}
    assert "Only clients 0 and 4 have the same two labels, 0 and 7" in TEXT
    honest = set.union(*has[:6])
    _, labels = digits("test")
    rest = 100 * (labels != 9).double().mean().item()
    assert {*range(10)} - honest == {9} and f"can teach at most {rest:.0f} %" in TEXT


def test_krum_stays_with_one_client_whose_updates_have_become_the_shortest():
    clients = partition.dealt(IMAGES, LABELS, TWO)
    how = {"rounds": 3, "epochs": 5, "batch": 10, "combine": robust.rules(1)["Krum"]}
    how["outgoing"] = attacks.by({9}, partial(attacks.scale, factor=-10))
    rows = dlviz.launch(received, 2, args=(NET, clients), kwargs=how).results[0]
    taken = [robust.nearest(each, torch.ones(10), attackers=1) for each in rows]
    assert taken == [4, 4, 4] and "Krum takes client 4, the network learns" in TEXT
    for each in rows[1:]:
        lengths = each.norm(dim=1)
        assert sorted(lengths.argsort()[:2].tolist()) == [0, 4], "the shortest two"
        assert lengths[[0, 4]].max() < 0.2 * lengths[[1, 2, 3, 5, 6, 7, 8, 9]].min()


def test_false_labels_do_the_harm_that_the_page_says():
    found = {
        name: median_and_range([100 * last_third(seed) for seed in runs[0.1]])
        for name, runs in SWEEP.methods("false labels", "identical").items()
    }
    (said,) = re.findall(r"the mean has (.+?) % with one, (.+?) % with three and (.+?) % w", PAGE)
    assert [*said] == [found[f"mean, {f} of 10"] for f in (1, 3, 4)]
    assert f"Median and trimmed mean have {found['median, 4 of 10']} % with four" in PAGE
    assert found["trimmed mean, 4 of 10"] == found["median, 4 of 10"]
    assert f"Krum has {found['Krum, 3 of 10']} % with three" in PAGE

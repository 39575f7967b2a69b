"""The figures that the text of lab 12 and its lecturers' page state: by formulas, from its own
data, and from rounds, which are counted and depend on no clock."""

from __future__ import annotations

import copy
import math
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

import dlviz
from dlviz.datasets import digits
from dlviz.federated import (
    Private,
    Secure,
    attacks,
    epsilon,
    inversion,
    partition,
    privacy,
    robust,
    train,
)
from dlviz.federated.secure.terms import Terms
from dlviz.federated.selection import Selection
from dlviz.models import MLP, ConvNet

LAB = Path(__file__).parents[2] / "labs" / "12_federated.ipynb"
TEXT = "\n".join(cell.source for cell in nbformat.read(LAB, as_version=4).cells)
PAGE = (LAB.parents[1] / "docs" / "teaching" / f"{LAB.stem}.md").read_text()
NET = MLP((64, 32, 10))
ROW = 4 * 2410  # bytes of all weights
IMAGES, LABELS = digits("train")
TEN, TWO = partition.identical(LABELS, 10), partition.by_label(LABELS, 10, per_client=2)


def accuracy(model: torch.nn.Module) -> float:
    images, labels = digits("test")
    with torch.no_grad():
        return (model(images).argmax(1) == labels).double().mean().item()


def scores(comm: dlviz.Comm, cases: list[tuple[list[torch.Tensor], dict[str, Any]]]) -> Any:
    found = []
    for parts, how in cases:
        clients = [(IMAGES[part], LABELS[part]) for part in parts]
        end = train(comm, copy.deepcopy(NET), clients, evaluate=accuracy, **how)
        found.append([each.score for each in end["rounds"]])
    return found


def rounds_to(goal: float, score: list[float]) -> float:
    return next((place + 1 for place, each in enumerate(score) if each >= goal), float("inf"))


def test_a_round_has_the_bytes_that_the_text_calculates():
    assert sum(p.numel() for p in NET.parameters()) == 2410 and "2,410 weights of 4 bytes" in TEXT
    assert 2 * 4 * ROW == 77_120 and f"2 · {ROW:,} · 4 = 77,120" in TEXT
    assert "**77,120** = 2 · 4 · 9,640" in PAGE
    assert 4 * (ROW + ROW // 2) == 57_840 == 0.75 * 77_120 and "**By 25 %**, to 57,840" in PAGE
    bytes_of_digits = len(partition.identical(LABELS, 4)[0]) * 64 * 4
    assert 9 * ROW < bytes_of_digits < 10 * ROW and "after ten rounds a client has sent" in TEXT


def test_a_client_trains_for_half_of_a_round():
    """Latency 10 ms, 1 ms more a kilobyte; the server's port passes one message at a time."""

    def message(nbytes: int) -> float:
        return 10 + nbytes / 1e3

    def share(clients: int) -> float:
        word, row, answer = message(16), message(ROW), message(40)
        seconds = clients * word + row + 180 + clients * (row + answer) + 5
        return 100 * 180 / seconds

    sizes = [len(part) for part in partition.identical(LABELS, 4)]
    assert sizes == [360, 359, 359, 359] and [-(-size // 40) for size in sizes] == [9] * 4
    assert f"**{share(4):.1f} %** = 180 / {180 / share(4) * 100:.1f}" in PAGE
    assert f"the training does not: {share(40):.1f} %." in PAGE
    assert f"{4 * (message(ROW) + message(40)):.1f} ms" in PAGE


def test_clients_have_two_labels_each_and_the_slow_ones_alone_have_8_and_9():
    assert ((partition.table(LABELS, TWO) > 0).sum(1) == 2).all()
    common, rare = (LABELS < 8).nonzero()[:, 0], (LABELS >= 8).nonzero()[:, 0]
    fast = [common[part][:144] for part in partition.identical(LABELS[common], 6)]
    slow = [rare[part] for part in partition.identical(LABELS[rare], 2)]
    assert {len(part) for part in fast} == {144} and {-(-len(part) // 24) for part in slow} == {6}
    assert "6 local steps of 24 digits. That is 120 ms, and 360 ms on a slow one" in TEXT


def test_each_rule_asks_the_clients_that_the_text_and_the_page_say():
    sizes = [len(part) for part in partition.unequal(LABELS, 10)]
    asked = {}
    for rule in ("uniform", "size", "round_robin"):
        choose = Selection(rule, 0.2, 0, None, seed=0).choose
        chosen = [k for number in range(20) for k in choose(number, [*range(10)], sizes)]
        asked[rule] = [chosen.count(k) for k in range(10)]
    assert (sizes[0], sizes[1], sizes[9]) == (488, 245, 50) and "(488 digits down to 50)" in PAGE
    assert (asked["uniform"][1], asked["uniform"][2]) == (0, max(asked["uniform"])) == (0, 6)
    assert "client 1, with 245 digits, is not asked once, and client 2 six times" in TEXT
    assert asked["size"][0] == 15 and "By size client 0 is asked in 15 of 20 rounds" in TEXT
    assert asked["round_robin"] == [4] * 10 and "In turn everybody is asked four times" in TEXT


@pytest.mark.sweep
def test_in_turn_clients_with_two_labels_teach_more_than_drawn():
    local = {"rounds": 60, "fraction": 0.2, "epochs": 5, "batch": 10}
    cases = [
        (TWO, {**local, "selection": rule, "seed": seed})
        for rule in ("uniform", "round_robin")
        for seed in range(3)
    ]
    found = dlviz.launch(scores, 2, args=(cases,), timeout=600).results[0]
    means = [100 * sum(score[40:]) / 20 for score in found]
    assert means == pytest.approx([74, 74, 76, 82, 82, 82], abs=2)
    assert "reads 82 % of the digits on average, against 74 %" in TEXT
    assert "with two other seeds 82 % against 74 and 76 %" in PAGE


def test_half_of_the_work_of_clients_that_always_train_is_unused():
    clients = [(IMAGES[part], LABELS[part]) for part in partition.identical(LABELS, 4)]
    how = {"rounds": 3, "fraction": 0.5, "batch": 40, "always": True}
    end = dlviz.launch(train, 2, args=(copy.deepcopy(NET), clients), kwargs=how).results[0]
    assert {each.computed for each in end["rounds"]} == {1437}
    assert {each.unused for each in end["rounds"]} <= {718, 719}
    assert "719 or 718 of the 1,437 digits" in PAGE and "Half of the work: in each round" in TEXT


@pytest.mark.sweep
def test_local_work_two_labels_and_fedsgd_take_as_many_rounds_as_the_text_says():
    five = {"fraction": 0.5, "epochs": 5, "batch": 10}
    whole = {"rounds": 42, "lr": 0.5}
    cases = [(TEN, {"rounds": 8, **five}), (TWO, {"rounds": 50, **five})]
    few, many, alike, unlike = dlviz.launch(
        scores, 2, args=([*cases, (TEN, whole), (TWO, whole)],)
    ).results[0]
    assert 2 <= rounds_to(0.9, few) <= 4
    assert 30 <= rounds_to(0.9, many) <= 50 and "43 rounds in place of 3" in PAGE
    assert max(abs(a - b) for a, b in zip(alike, unlike, strict=True)) <= 2 / 360  # rounding
    assert 36 <= rounds_to(0.9, alike) <= 40 and "38 rounds in both" in PAGE


@pytest.mark.sweep
def test_with_whole_local_batches_20_epochs_take_fewer_rounds_than_5_with_every_seed():
    cases = [
        (partition.identical(LABELS, 10, seed=seed),
         {"rounds": most, "fraction": 0.5, "epochs": epochs, "seed": seed})
        for epochs, most in ((5, 45), (20, 15))
        for seed in range(5)
    ]  # fmt: skip
    cases.append((TEN, {"rounds": 190, "fraction": 0.5}))
    found = [rounds_to(0.9, score) for score in dlviz.launch(scores, 2, args=(cases,)).results[0]]
    for five, twenty in zip(found[:5], found[5:10], strict=True):
        assert twenty < five / 3, "less than a third of the rounds"
    assert 150 < found[10] < 190 and "about **170 rounds**" in TEXT


@pytest.mark.sweep
def test_the_answers_to_what_readers_find_out_are_those_of_the_page():
    half = {"rounds": 60, "fraction": 0.5}
    cases = [
        (TWO, {**half, "batch": 10}),
        (TWO, {**half, "epochs": 5, "batch": 10}),
        (TWO, {**half, "epochs": 5}),
        (TWO, half),
    ]
    cases += [
        (partition.dirichlet(LABELS, 10, alpha), {**half, "epochs": 5, "batch": 10})
        for alpha in (100, 1, 0.1)
    ]
    found = dlviz.launch(scores, 2, args=(cases,)).results[0]
    assert [rounds_to(0.8, score) for score in found[:4]] == pytest.approx(
        [19, 19, 40, float("inf")], abs=3
    )
    assert found[3][-1] == pytest.approx(0.55, abs=0.03) and "reads 55 % after 60" in PAGE
    assert "19 rounds with E = 1, B = 10" in PAGE and "40 with E = 5, B = ∞" in PAGE
    assert [rounds_to(0.9, score) for score in found[4:]] == pytest.approx([4, 4, 13], abs=2)
    assert "**4, 4 and 13 rounds**" in PAGE
    sizes = [len(part) for part in partition.dirichlet(LABELS, 10, 0.1)]
    assert f"sizes go from {min(sizes)} to {max(sizes)}" in PAGE


# -- parts 5 and 6 ---------------------------------------------------------------------------------
COUNTS = (1, 2, 4, 8, 16, 32, 64)
CROWD = [part[:count] for count in COUNTS for part in partition.identical(LABELS, 20)]


def received(comm: dlviz.Comm, cases: list[tuple[list[torch.Tensor], dict[str, Any]]]) -> Any:
    """The updates that reach the server in one round of each case, (clients, parameters)."""
    taken: list[torch.Tensor] = []
    for parts, how in cases:
        clients = [(IMAGES[part], LABELS[part]) for part in parts]

        def keep(rows: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
            taken.append(rows)
            return rows.mean(0)

        train(comm, copy.deepcopy(NET), clients, rounds=1, combine=keep, **how)
    return taken


def first_layer(update: torch.Tensor) -> list[torch.Tensor]:
    return inversion.unflatten(NET, update)[:2]


def read(update: torch.Tensor, part: torch.Tensor) -> int:
    """How many digits of `part` are among the images found, a pixel 0.02 off at most on average."""
    found, own = inversion.ratio(*first_layer(update)), IMAGES[part].flatten(1)
    return sum(bool(((found - each).abs().mean(1) < 0.02).any()) for each in own)


def clipped(update: torch.Tensor, client: int, number: int) -> torch.Tensor:
    return privacy.clip(update, 0.001)


def blurred(update: torch.Tensor, client: int, number: int) -> torch.Tensor:
    noise = (0.001, 0.01, 0.1)[client // 8]
    source, length = torch.Generator().manual_seed(client), update.norm().item()
    return privacy.local(update, bound=length, noise_multiplier=noise, generator=source)


@pytest.fixture(scope="module")
def updates() -> list[torch.Tensor]:
    cases = [(CROWD, {}), (CROWD, {"epochs": 5}), (CROWD[:20], {"outgoing": clipped})]
    cases.append((3 * CROWD[:8], {"outgoing": blurred}))
    return dlviz.launch(received, 2, args=(cases,)).results[0]


def test_as_many_digits_are_read_as_the_text_and_the_page_say(updates):
    one, five, short, _ = updates
    means = [
        {
            count: sum(read(rows[20 * i + k], CROWD[20 * i + k]) for k in range(20)) / 20
            for i, count in enumerate(COUNTS)
        }
        for rows in (one, five)
    ]
    assert means[0][1] == means[1][1] == 1, "all twenty, whatever the epochs"
    assert all(read(row, part) for row, part in zip(short, CROWD, strict=False))
    assert [round(means[0][count], 2) for count in (4, 16, 64)] == [3, 2.5, 1.2]
    assert "**2.5**, on average" in PAGE and "(1.2 against 3:" in PAGE
    lengths = one[:20].norm(dim=1)
    assert f"lengths of {lengths.min():.2f} to {lengths.max():.2f}" in PAGE
    assert short[:20].norm(dim=1).max() <= 0.001001 and "a two-hundredth of what it was" in TEXT
    assert all(means[0][count] >= means[1][count] for count in COUNTS)


def test_few_digits_switch_on_some_of_the_units():
    on = (NET[:3](IMAGES) > 0).double().mean(0)  # (32,), share of the digits
    assert (int((on < 0.06).sum()), int((on > 0.97).sum())) == (6, 5)
    assert "six are switched on by less than 6 % of all digits, and five by more than 97 %" in PAGE
    assert "switched on by a few digits in a hundred only" in TEXT


def test_noise_of_10_percent_ends_the_reading(updates):
    gaps = []
    for row, part in zip(updates[3], 3 * CROWD[:8], strict=True):
        strongest = inversion.ratio(*first_layer(row), outside=math.inf, alike=0)[0]
        gaps.append((strongest - IMAGES[part].flatten()).abs().mean().item())
    means = torch.tensor(gaps).view(3, 8).mean(1).tolist()
    assert means == pytest.approx([0.01, 0.07, 0.33], abs=0.02)
    assert "With 10 % of noise nothing is left to read" in TEXT


def test_the_bytes_of_a_secure_sum_are_those_of_the_text_and_the_page():
    terms = len(str(Terms((2410,), "float32", 8, 5, 1.0, 32)))
    assert 100 * (179 * 8 + 148 + terms) / ROW == pytest.approx(17.0, abs=0.05)
    assert f"**17.0 %** = (179 · 8 + 148 + {terms}) / 9,640" in PAGE
    dearer = next(n for n in range(2, 100) if 179 * n + 148 + terms > ROW)
    assert f"({dearer}. " in PAGE
    assert 179 * 1000 == 179_000 and "179 kB for its masks and 10 kB for its update" in TEXT


def test_epsilon_is_what_the_text_and_the_page_say():
    loud, quiet = (epsilon(sigma, 0.1, 40, 1e-5, clients=1000) for sigma in (1, 2))
    assert f"**{loud:.2f}**, {loud / quiet:.1f} times the {quiet:.2f} of σ = 2" in PAGE
    assert f"With σ = 2 they spend ε = {quiet:.2f}" in TEXT
    assert f"Half the noise, {loud / quiet:.1f} times the ε" in TEXT
    assert f"e^5.39 = {math.exp(round(loud, 2)):.0f}" in PAGE and f"{math.exp(quiet):.0f}.)" in PAGE
    assert f"after four rounds σ = 2 has spent {epsilon(2, 0.1, 4, 1e-5):.2f}" in TEXT
    assert f"**{epsilon(1, 0.01, 40, 1e-5, clients=10_000):.2f}**" in PAGE


@pytest.mark.sweep
def test_noise_costs_the_accuracy_that_the_text_says():
    cases = []
    for sigma in (0, 1, 2, 4):
        options = {"rounds": 40, "fraction": 0.1, "selection": "poisson", "lr": 1.0}
        options["private"] = Private(bound=2.0, noise_multiplier=sigma, delta=1e-5)
        cases.append((partition.identical(LABELS, 1000), options))
    found = dlviz.launch(scores, 2, args=(cases,), timeout=600).results[0]
    assert [score[-1] for score in found] == pytest.approx([0.91, 0.89, 0.86, 0.66], abs=0.03)
    assert found[2][3] < 1 / 3 and found[3][-1] == pytest.approx(2 / 3, abs=0.03)
    assert "reads 91 %, with σ = 1 about as much, with σ = 2 a little less" in TEXT


def test_secure_rounds_with_noise_cost_the_bytes_and_the_accuracy_that_the_text_says():
    alike = [part[:179] for part in partition.identical(LABELS, 8)]
    assert {len(part) for part in alike} == {179}, "all count alike, as the ε has it"

    def noised(update: torch.Tensor, client: int, number: int) -> torch.Tensor:
        source = torch.Generator().manual_seed(8 * number + client)
        return privacy.local(update, bound=1.0, noise_multiplier=8**-0.5, generator=source)

    variants = {}, {"secure": Secure(5, 400.0)}, {"secure": Secure(5, 400.0), "outgoing": noised}
    clients = [(IMAGES[part], LABELS[part]) for part in alike]

    def each_variant(comm: dlviz.Comm) -> Any:
        how = {"rounds": 10, "batch": 10, "evaluate": accuracy}
        return [
            train(comm, copy.deepcopy(NET), clients, **how, **variant)["rounds"]
            for variant in variants
        ]

    plain, closed, noisy = dlviz.launch(each_variant, 9).results[0]
    assert not any(one.unchanged for one in (*plain, *closed, *noisy))
    assert 100 * (closed[0].nbytes / plain[0].nbytes - 1) == pytest.approx(18, abs=0.5)
    assert "**18 %** more bytes a round" in TEXT and noisy[0].nbytes == closed[0].nbytes
    reads = [one[-1].score for one in (plain, closed, noisy)]
    assert reads == pytest.approx([0.9, 0.9, 0.9 - 0.25], abs=0.04)
    assert "as many digits are read" in TEXT and "σ = 1 about a quarter" in TEXT
    assert f"ε = {epsilon(1, 1, 10, 1e-5, clients=8):.0f}, and a factor of e¹⁹" in TEXT


@pytest.mark.sweep
def test_a_search_reads_a_digit_out_of_a_convolutional_network():
    net, part = ConvNet(seed=1), partition.identical(LABELS, 20)
    gaps = {}
    for client, starts in ((0, 1), (0, 3), (1, 1)):
        own = IMAGES[part[client][:1]]
        loss = torch.nn.functional.cross_entropy(net(own), LABELS[part[client][:1]])
        slopes = torch.autograd.grad(loss, [*net.parameters()])
        row = torch.cat([-0.1 * slope.flatten() for slope in slopes])
        found = inversion.match(net, row, (1, 1, 8, 8), starts=starts)
        gaps[client, starts] = (found - own).abs().mean().item()
    assert gaps[0, 1] == pytest.approx(0.12, abs=0.02) and "**0.12** for client 0" in PAGE
    assert gaps[1, 1] < 0.001 and gaps[0, 3] < 0.001 and "three starts less than 0.001" in PAGE


@pytest.mark.sweep
def test_a_trained_network_reveals_fewer_of_16_digits_and_a_single_one_as_before():
    common, rare = (LABELS < 8).nonzero()[:, 0], (LABELS >= 8).nonzero()[:, 0]
    parts = [common[part][:144] for part in partition.identical(LABELS[common], 6)]
    parts += [rare[part] for part in partition.identical(LABELS[rare], 2)]
    eight = [(IMAGES[part], LABELS[part]) for part in parts]  # part 4's clients, all heard
    net, options = copy.deepcopy(NET), {"rounds": 12, "batch": 24, "lr": 0.5}
    end = dlviz.launch(train, 2, args=(net, eight), kwargs=options, timeout=600)
    net.load_state_dict(end.results[0]["state"])
    means = []
    for count in (1, 16):
        of_each = []
        for part in partition.identical(LABELS, 20):
            loss = torch.nn.functional.cross_entropy(
                net(IMAGES[part[:count]]), LABELS[part[:count]]
            )
            slopes = torch.autograd.grad(loss, [*net.parameters()])
            of_each.append(read(-torch.cat([slope.flatten() for slope in slopes]), part[:count]))
        means.append(sum(of_each) / 20)
    assert means == [1, pytest.approx(1.0, abs=0.1)]
    assert "1.0 instead of 2.5; of one digit all twenty" in PAGE


def attacked(parts: list[torch.Tensor], f: int, rule: Any, rounds: int) -> Any:
    """A training in which the last f of ten clients send their updates times -10."""

    def outgoing(update: torch.Tensor, client: int, number: int) -> torch.Tensor:
        return attacks.scale(update, -10) if client >= 10 - f else update

    local = {"rounds": rounds, "epochs": 5, "batch": 10}
    return parts, {**local, "combine": rule, "outgoing": outgoing}


READ_MEAN = 84  # %, of the test digits: the mean, two labels a client, 15 rounds
TOLD = {  # %, two labels a client, 15 rounds, 0 to 4 attackers of ten
    "mean": (84, 9, 14, 11, 9),
    "median": (73, 72, 66, 46, 29),
    "trimmed mean": (86, 73, 69, 46, 29),
    "Krum": (20, 20, 20, 20, 13),
}


def rules(f: int) -> dict[str, Any]:
    return {
        "mean": robust.mean,
        "median": robust.median,
        "trimmed mean": partial(robust.trimmed_mean, attackers=f),
        "Krum": partial(robust.krum, attackers=f),
    }


@pytest.mark.sweep
def test_one_attacker_undoes_the_mean_two_rules_withstand_four_and_krum_reads_two_labels():
    cases = [attacked(TEN, 1, robust.mean, 10)]
    cases += [attacked(TEN, 4, rule, 5) for rule in rules(4).values()]  # in the lab ten rounds
    cases += [attacked(TWO, 0, robust.mean, 15), attacked(TWO, 0, rules(0)["Krum"], 5)]
    undone, *four, mean, krum = (
        [100 * each for each in score]
        for score in dlviz.launch(scores, 2, args=(cases,), timeout=600).results[0]
    )
    assert undone[-1] < 30 and max(undone) < 40, "no better than a guess, or nearly"
    assert [score[-1] >= 80 for score in four] == [False, True, True, False]
    assert four[1] == pytest.approx(four[2], abs=1), "the median is the trimmed mean of 2 of 10"
    assert "attackers of ten, how many of the four rules" in TEXT and "**2:** median and" in PAGE
    untrained = copy.deepcopy(NET)
    assert 100 * accuracy(untrained) == four[3][0] == four[3][-1]
    assert f"{four[3][-1]:.1f} % is what the untrained network reads" in TEXT
    assert mean[-1] == pytest.approx(READ_MEAN, abs=2) and f"it reads {READ_MEAN} %.)" in TEXT
    assert krum[-1] == pytest.approx(19.7, abs=0.6) and "**19.7 %**" in PAGE


def test_krum_withstands_three_of_ten_and_its_two_clients_share_their_labels():
    updates = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    robust.krum(updates, torch.ones(10), attackers=3)
    with pytest.raises(ValueError, match=r"needs 2f \+ 3 clients; 10 came, which tolerate 3"):
        robust.krum(updates, torch.ones(10), attackers=4)
    assert "With **n ≥ 2f + 3**, the condition" in TEXT and "Ten clients withstand three" in TEXT
    has = [set(LABELS[part].tolist()) for part in TWO]
    twins = [(i, j) for i in range(10) for j in range(i) if has[i] == has[j]]
    assert twins == [(4, 0)] and has[0] == {0, 7}
    assert "Only clients 0 and 4 have the same two labels, 0 and 7" in TEXT
    honest = [set.union(*has[: 10 - f]) for f in range(5)]
    assert [set(range(10)) - own for own in honest] == [set(), set(), {9}, {9}, {9}]
    _, labels = digits("test")
    rest = 100 * (labels != 9).double().mean().item()
    assert f"{rest:.0f} % could be read" in TEXT and "nobody honest has a 9" in TEXT


def picks(comm: dlviz.Comm, parts: list[torch.Tensor], f: int, rounds: int) -> Any:
    """Whom Krum takes in each round, and the lengths of all updates."""
    found = []

    def krum(updates: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        new = robust.krum(updates, weights, attackers=f)
        found.append(((updates == new).all(1).nonzero()[0].item(), updates.norm(dim=1)))
        return new

    clients = [(IMAGES[part], LABELS[part]) for part in parts]
    train(comm, copy.deepcopy(NET), clients, **attacked(parts, f, krum, rounds)[1])
    return found


def test_krum_stays_with_one_client_whose_updates_have_become_the_shortest():
    first, *later = dlviz.launch(picks, 2, args=(TWO, 1, 3), timeout=600).results[0]
    assert first[0] == 4 and "Krum takes client 4, the network learns its labels" in TEXT
    for client, lengths in later:
        assert client == 4
        assert sorted(lengths.argsort()[:2].tolist()) == [0, 4], "the shortest two"
        assert lengths[[0, 4]].max() < 0.2 * lengths[[1, 2, 3, 5, 6, 7, 8, 9]].min()


@pytest.mark.sweep
def test_the_tables_of_the_rules_are_what_the_text_and_the_page_say():
    cases = {
        (own, f, name): attacked(parts, f, rule, rounds)
        for own, parts, rounds in (("same", TEN, 10), ("two", TWO, 15))
        for f in range(5)
        for name, rule in rules(f).items()
    }
    found = dlviz.launch(scores, 2, args=([*cases.values()],), timeout=900).results[0]
    last = {key: 100 * score[-1] for key, score in zip(cases, found, strict=True)}
    for f in range(1, 5):
        assert last["same", f, "mean"] < 30, "in the text: no better than a guess"
        assert min(last["same", f, name] for name in ("median", "trimmed mean")) > 92
    assert all(last["same", f, "Krum"] > 92 for f in range(4))
    assert all(last["two", f, "Krum"] == pytest.approx(19.7, abs=1) for f in range(4))
    assert all(last["two", 4, name] < 40 for name in rules(4)), "no rule withstands four"
    for name, row in TOLD.items():
        assert f"| {name} | {' | '.join(map(str, row))} |" in PAGE
        if name != "mean":
            assert [last["two", f, name] for f in range(5)] == pytest.approx(row, abs=3), name


@pytest.mark.sweep
def test_a_wrong_f_and_false_labels_do_what_the_page_says():
    trimmed = [
        attacked(TEN, f, rules(expected)["trimmed mean"], 10) for f, expected in ((3, 1), (0, 3))
    ]
    results = dlviz.launch(scores, 2, args=(trimmed,), timeout=600).results[0]
    assert results[0][-1] < 0.2 and "**9 % and 95 %.**" in PAGE
    assert results[1][-1] == pytest.approx(0.95, abs=0.01)
    local = {"rounds": 10, "epochs": 5, "batch": 10}
    cases = [(f, {**local, "combine": rule}) for f in (1, 3, 4) for rule in rules(f).values()]
    flipped = [
        100 * score[-1] for score in dlviz.launch(lied, 2, args=(cases,), timeout=600).results[0]
    ]
    means, krums = flipped[::4], flipped[3::4]
    assert means == pytest.approx([94, 95, 89], abs=3)
    assert krums[:2] == pytest.approx([94, 94], abs=2) and krums[2] < 20
    assert min(flipped[1::4] + flipped[2::4]) > 93


def lied(comm: dlviz.Comm, cases: list[tuple[int, dict[str, Any]]]) -> Any:
    """As `scores`; the last f clients train on false labels."""
    found = []
    for f, how in cases:
        clients = [(IMAGES[part], LABELS[part]) for part in TEN]
        clients[10 - f :] = [(x, attacks.flip_labels(y, 10)) for x, y in clients[10 - f :]]
        end = train(comm, copy.deepcopy(NET), clients, evaluate=accuracy, **how)
        found.append([each.score for each in end["rounds"]])
    return found

"""The figures that lab 12 and its lecturers' page state: by formulas, from its own data, and from
the recorded trainings, of which one row of each study is made again."""

from __future__ import annotations

import copy
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import nbformat
import pytest
from loading import loaded

import dlviz
from dlviz.datasets import digits
from dlviz.federated import partition, received, rounds_to, train, train_each
from dlviz.federated.compared import Sweep, Tuned, last_third, scores, summary, tuned
from dlviz.federated.selection import Selection
from dlviz.grading.questions import behind
from dlviz.models import MLP, accuracy

ROOT = Path(__file__).parents[2]
LAB = ROOT / "labs" / "12_federated.ipynb"
TEXT = "\n".join(cell.source for cell in nbformat.read(LAB, as_version=4).cells)
PAGE = (ROOT / "docs" / "teaching" / f"{LAB.stem}.md").read_text()
SWEEP = Sweep.load(ROOT / "labs" / "recorded" / LAB.stem / "sweep.json")
NET = MLP((64, 32, 10))
ROW = 4 * 2410  # bytes of all weights
IMAGES, LABELS = digits("train")
TEN, TWO = partition.identical(LABELS, 10), partition.by_label(LABELS, 10, per_client=2)
SLOW = "8 and 9 on slow clients"


def first(found: Tuned) -> float:
    """The median over the seeds of the first round at 90 %."""
    return median(found.rounds)


WORK = SWEEP.tuned("local work", "identical")
SAME, APART = SWEEP.tuned("asked", "identical"), SWEEP.tuned("asked", "two labels")
REMEDIES = SWEEP.tuned("remedies", "two labels")
GRADIENTS = {data: SWEEP.tuned("FedSGD", data) for data in ("identical", "two labels")}
FORMULAS = {
    "rounds-to-90": first(WORK["E = 1, B = ∞"]) / first(WORK["E = 5, B = 10"]),
    "rounds-two-labels": first(APART["C = 0.5"]) / first(SAME["C = 0.5"]),
}


def sweep_of(lab: str) -> ModuleType:
    """The script that makes a lab's sweep."""
    return loaded(ROOT / "labs" / "recorded" / lab / "sweep.py")


def made_again(lab: str, sweep: Sweep, rounds: int) -> None:
    """Hold the first row of each study, a training's first `rounds`, to the file."""
    module, chosen = sweep_of(lab), {}
    for case in module.cases():
        chosen.setdefault(case["study"], copy.deepcopy(case))
        assert case["seed"] in module.SEEDS and len(module.SEEDS) == 5
    for case in chosen.values():
        case["how"]["rounds"] = min(rounds, case["how"].get("rounds", 1))

    def again(comm: dlviz.Comm) -> list[dict[str, Any]]:
        return module.trained(comm, [*chosen.values()])

    import cloudpickle

    cloudpickle.register_pickle_by_value(module)
    keys = "study", "method", "data", "seed", "lr"
    stored = {tuple(row[key] for key in keys): row for row in sweep.rows}
    rows = dlviz.launch(again, 2, timeout=300).results[0]
    assert {row["study"].split(",")[0] for row in rows} == {*chosen}
    for row in rows:
        before = stored[tuple(row[key] for key in keys)]
        assert row["of"] == before["of"]
        expected = before["right"][: len(row["right"])]
        assert row["right"] == pytest.approx(expected, abs=3), row["study"]  # another CPU rounds


def test_a_row_of_each_recorded_study_is_made_again():
    made_again("12_federated", SWEEP, rounds=4)


def test_every_method_has_three_rates_or_more_and_five_seeds():
    asked = {(row["study"], row["data"]) for row in SWEEP.rows}
    for study, data in asked:
        for name, runs in SWEEP.methods(study, data).items():
            assert len(runs) >= 3 and {len(seeds) for seeds in runs.values()} == {5}, (study, name)


def test_a_round_has_the_bytes_that_the_text_calculates():
    assert sum(p.numel() for p in NET.parameters()) == 2410 and "2,410 weights of 4 bytes" in TEXT
    assert 2 * 4 * ROW == 77_120 and f"2 · {ROW:,} · 4 = 77,120" in TEXT
    assert "**77,120** = 2 · 4 · 9,640" in PAGE
    assert 4 * (ROW + ROW // 2) == 57_840 == 0.75 * 77_120 and "57,840 bytes, 25 % less" in PAGE
    pixels = len(partition.identical(LABELS, 4)[0]) * 64
    assert 2 * ROW < pixels < 3 * ROW and "after three rounds client 0 has sent more" in TEXT


def test_a_client_trains_for_half_of_a_round():
    """Latency 10 ms, 1 ms more a kilobyte; the server's port passes one message at a time."""

    def message(nbytes: int) -> float:
        return 10 + nbytes / 1e3

    def share(clients: int, short: bool = True) -> float:
        word, row, answer = message(16) * short, message(ROW), message(40) * short
        seconds = clients * word + row + 180 + clients * (row + answer) + 5
        return 100 * 180 / seconds

    sizes = [len(part) for part in partition.identical(LABELS, 4)]
    assert sizes == [360, 359, 359, 359] and [-(-size // 40) for size in sizes] == [9] * 4
    assert f"**{share(4):.1f} %** = 180 / {180 / share(4) * 100:.1f}" in PAGE
    assert f"the training does not: {share(40):.1f} %." in PAGE
    assert f"{4 * (message(ROW) + message(40)):.1f} ms" in PAGE
    alone = share(1), share(1, short=False)
    assert "{:.0f} to {:.0f} % (the messages of one client alone,".format(*alone) in PAGE
    asks = "share of a round in which client 0 trains, 4 clients"
    assert all("messages of one client alone" in behind(asks, each, share(4)) for each in alone)
    assert "leaves out the short messages" in behind(asks, share(4, short=False), share(4))


def test_clients_have_two_labels_each_and_the_slow_ones_alone_have_8_and_9():
    assert ((partition.table(LABELS, TWO) > 0).sum(1) == 2).all()
    common, rare = (LABELS < 8).nonzero()[:, 0], (LABELS >= 8).nonzero()[:, 0]
    fast = [common[part][:144] for part in partition.identical(LABELS[common], 6)]
    slow = [rare[part] for part in partition.identical(LABELS[rare], 2)]
    assert {len(part) for part in fast} == {144} and {-(-len(part) // 24) for part in slow} == {6}
    assert "6 local steps of 24 images. That is 120 ms, and 360 ms on a slow one" in TEXT


def test_each_rule_asks_the_clients_that_the_text_and_the_page_say():
    sizes = [len(part) for part in partition.unequal(LABELS, 10)]
    asked = {}
    for rule in ("uniform", "size", "round_robin"):
        choose = Selection(rule, 0.2, 0, None, seed=0).choose
        chosen = [k for number in range(20) for k in choose(number, [*range(10)], sizes)]
        asked[rule] = [chosen.count(k) for k in range(10)]
    assert (sizes[0], sizes[9]) == (488, 50) and "(488 images down to 50)" in PAGE
    assert (asked["uniform"][1], asked["uniform"][2]) == (0, max(asked["uniform"])) == (0, 6)
    assert "client 1 is not asked once, and client 2 six times" in TEXT
    assert asked["size"][0] == 15 and "By size client 0 is asked in 15 of 20 rounds" in TEXT
    assert asked["round_robin"] == [4] * 10


def test_half_of_the_work_of_clients_that_always_train_is_unused():
    clients = partition.dealt(IMAGES, LABELS, partition.identical(LABELS, 4))
    how = {"rounds": 3, "fraction": 0.5, "batch": 40, "always": True}
    end = dlviz.launch(train, 2, args=(copy.deepcopy(NET), clients), kwargs=how).results[0]
    assert {each.computed for each in end["rounds"]} == {1437}
    assert {each.unused for each in end["rounds"]} <= {718, 719}
    assert "719 or 718 of the 1,437 images" in PAGE and "Half of the work" in TEXT


def test_the_text_and_the_page_say_what_was_recorded_of_local_work():
    whole, small = WORK["E = 1, B = ∞"], WORK["E = 1, B = 10"]
    assert f"rounds and epochs fall from {first(whole):.0f} to {first(small):.0f}" in TEXT
    epochs = {"E = 5, B = ∞": 5, "E = 20, B = ∞": 20, "E = 5, B = 10": 5, "E = 20, B = 10": 20}
    for name, many in epochs.items():  # more epochs compute about as much, or more
        least = first(whole if name.endswith("∞") else small)
        assert many * first(WORK[name]) >= least, name
        assert first(WORK[name]) < least
    found = WORK["E = 5, B = 10"]
    assert f"**{FORMULAS['rounds-to-90']:.0f}** = {first(whole):.0f} / {first(found):.0f}" in PAGE
    runs = SWEEP.methods("local work", "identical")
    alike = [
        first(tuned({0.1: runs[name][0.1]}, 0.9)) for name in ("E = 1, B = ∞", "E = 5, B = 10")
    ]
    assert alike == [float("inf"), 3] and len(runs["E = 1, B = ∞"][0.1][0]) == 60
    assert "FedSGD does not have 90 % after 60 rounds then, FedAvg after 3" in PAGE
    assert f"after {first(whole):.0f} rounds ({min(whole.rounds):.0f} to" in PAGE


def test_two_labels_cost_the_rounds_that_the_text_and_the_page_say():
    same, apart = SAME["C = 0.5"], APART["C = 0.5"]
    factor = FORMULAS["rounds-two-labels"]
    assert f"**{factor:.1f}** = {first(apart):.0f} / {first(same):.0f}" in PAGE
    assert factor > 10 and "needs more than ten times as many" in TEXT
    assert f"With C = 0.2 it is {first(APART['C = 0.2']):.0f}, and some seeds never" in PAGE
    assert max(APART["C = 0.2"].rounds) == min(APART["C = 0.1"].rounds) == float("inf")
    assert max(found.rounds[i] for found in SAME.values() for i in range(5)) <= 3, "costs little"


def test_fedsgd_with_all_clients_does_not_suffer_and_with_fewer_it_does():
    same, apart = GRADIENTS["identical"], GRADIENTS["two labels"]
    assert same["C = 1"].rounds == apart["C = 1"].rounds
    for name in ("C = 0.5", "C = 0.2"):
        assert first(apart[name]) > 1.4 * first(same[name])
    numbers = [f"{first(found['C = 0.5']):.0f}" for found in (same, apart)]
    toml = (ROOT / "dlviz" / "grading" / "questions" / "12.toml").read_text()
    assert "{} rounds grow to {}".format(*numbers) in toml


def test_the_text_and_the_page_say_which_remedy_helped():
    plain, momentum = REMEDIES["FedAvg"], REMEDIES["FedAvgM, β = 0.5"]
    assert max(momentum.rounds) < min(plain.rounds), "every seed"
    assert f"needs {first(momentum):.0f} rounds in place of {first(plain):.0f}" in TEXT
    assert all(first(REMEDIES[f"FedProx, μ = {mu}"]) > first(plain) for mu in ("0.1", "1"))
    for name, found in REMEDIES.items():
        assert f"| {' | '.join([name, *summary(found).values()])} |" in PAGE
    runs = SWEEP.methods("remedies", "two labels")
    alike = {name: first(tuned({0.1: seeds[0.1]}, 0.9)) for name, seeds in runs.items()}
    assert f"{alike['FedAvgM, β = 0.9']:.0f} rounds against {alike['FedAvg']:.0f}" in PAGE
    assert sum(found.rate == max(runs[name]) for name, found in REMEDIES.items()) == 2
    assert "For two of the five the best rate, 0.5, is the largest tried" in TEXT
    drawn, turn = APART["C = 0.2"], SWEEP.tuned("selection", "two labels")["in turn"]
    ends = [100 * median(found.ends) for found in (turn, drawn)]
    assert "ends at {:.0f} %, against {:.0f} % drawn".format(*ends) in TEXT


def test_whoever_drops_the_slow_clients_recognises_no_8_and_no_9():
    best = SWEEP.tuned("stragglers", SLOW, goal=float("inf"))
    ends = {name: 100 * median(found.ends) for name, found in best.items()}
    drop, wait = ends["deadline, drop"], ends["wait for all"]
    assert f"{drop:.0f} %, where waiting and late updates have {wait:.0f} %" in TEXT
    assert round(ends["deadline, take late"]) == round(wait)
    assert round(ends["first 6 of 8"]) == round(drop)
    assert f"is {drop:.0f} %, where waiting for all has {wait:.0f} %" in PAGE
    rare = SWEEP.methods("stragglers, 8 and 9", SLOW)
    for name in ("deadline, drop", "first 6 of 8"):
        assert all(last_third(seed) == 0 for seeds in rare[name].values() for seed in seeds), name
    late = rare["deadline, take late"][best["deadline, take late"].rate]
    assert all(max(seed[-7:]) - min(seed[-7:]) > 0.5 for seed in late), "the lines jump"


def test_clients_with_two_labels_go_farther_and_more_than_half_cancels_out():
    went = []
    for parts in (TEN, TWO):
        clients, how = partition.dealt(IMAGES, LABELS, parts), {"epochs": 5, "batch": 10}
        (rows,) = dlviz.launch(received, 2, args=(NET, clients), kwargs=how).results[0]
        went.append((rows.norm(dim=1).mean().item(), rows.mean(0).norm().item()))
    (same, mean), (far, short) = went
    assert far > same and mean > 0.9 * same and short < far / 2


@pytest.mark.sweep
def test_the_dirichlet_partitions_take_the_rounds_of_the_page():
    alphas = 100, 1, 0.1
    parts = {alpha: partition.dirichlet(LABELS, 10, alpha) for alpha in alphas}
    cases = {a: (partition.dealt(IMAGES, LABELS, own), {}) for a, own in parts.items()}
    images, labels = digits("test")
    how = {"rounds": 30, "fraction": 0.5, "epochs": 5, "batch": 10, "lr": 0.2}
    how["evaluate"] = lambda net: accuracy(net, images, labels)
    ends = dlviz.launch(train_each, 2, args=(NET, cases), kwargs=how, timeout=300).results[0]
    assert [rounds_to(0.9, scores(ends[a])) for a in alphas] == pytest.approx([2, 3, 10], abs=2)
    assert "**2, 3 and 10 rounds**" in PAGE
    sizes = [len(part) for part in parts[0.1]]
    assert f"sizes go from {min(sizes)} to {max(sizes)}" in PAGE

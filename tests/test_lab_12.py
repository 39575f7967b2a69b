"""The figures that the text of lab 12 and its lecturers' page state: by formulas, from its own
data, and from rounds, which are counted and depend on no clock."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

import dlviz
from dlviz.datasets import digits
from dlviz.federated import partition, train
from dlviz.models import MLP

LAB = Path(__file__).parents[1] / "labs" / "12_federated.ipynb"
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


def test_local_work_two_labels_and_fedsgd_take_the_rounds_that_are_told():
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

"""The figures that lab 07 and its page state: by closed forms, from recorded trainings, of which
two are made again, and from the stored runs."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from types import ModuleType

import nbformat
import pytest
from loading import loaded
from stored import shown, table

from dlviz.analysis.compared import at_lowest_loss
from dlviz.analysis.recorded import Recorded
from dlviz.grading.questions import by_lab
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.models import SmallAlexNet
from dlviz.sim import (
    best_single,
    channel_filter_words,
    cheapest_path,
    convolution_share,
    halo_cells,
    halo_rows,
    net_costs,
    net_layers,
    one_weird_trick,
    segmented_share,
    weird_trick_wins_below,
)
from dlviz.widgets import ConvolutionExplorer

LABS = Path(__file__).parents[2] / "labs"
RECORDED = LABS / "recorded" / "07_convolutions"
ROWS = Recorded.load(RECORDED / "sweep.json").rows
BEST = at_lowest_loss(ROWS)
CELLS = nbformat.read(LABS / "07_convolutions.ipynb", 4).cells
TEXT = "\n".join(cell.source for cell in CELLS)
PAGE = (LABS.parent / "docs" / "teaching" / "07_convolutions.md").read_text()
DENSE = sum(p.numel() for p in SmallAlexNet()[8:].parameters())
MACHINE = Machine(
    Device("chosen", 1e13, 32e9, 1e12), Topology.switch(8, Link(1e-5, 1e10)), step=None
)
CUTS = [
    {"N": 2, "H": 4}, {"N": 2, "H": 2, "W": 2}, {"H": 8}, {"H": 4, "W": 2},
    {"N": 2, "C": 4}, {"N": 2, "F": 4}, {"N": 2, "C": 2, "F": 2}, {"N": 2, "F": 2, "C": 2},
    {"C": 4, "F": 2}, {"F": 4, "C": 2}, {"C": 8}, {"F": 8},
]  # fmt: skip
COSTS = net_costs([*net_layers("resnet50", 2).values()], CUTS, MACHINE)
PATH, CHOSEN = cheapest_path(COSTS.seconds, COSTS.switches)
SINGLE, WHICH = best_single(COSTS.seconds, COSTS.switches)


def crossing(images: int, nbytes: int = 8192) -> float:
    """Seconds in which a port sends so many images to each of three ranks."""
    return 3 * (1e-5 + images * nbytes / 5e6)


FORMULAS = {  # a question's answer, by its id
    "alexnet-convolutions": 100 * convolution_share(net_layers("alexnet").values())[0],
    "weird-trick-images": weird_trick_wins_below(2048, DENSE, 4) // 1,
    "crossing-one-by-slices": 4,
    "halo-over-block": 100 * sum(halo_rows(64, 8, 3, padding=1)[3]) / 8,
    "two-images-by-samples": 2,
    "own-rows-norm": 100,
    "stationary-w": channel_filter_words(2, 16, 16, 16, 16, 2, 2) / (2 * 16 * 16 * 16),
    "path-gain": SINGLE / PATH,
}


def test_the_answers_are_those_of_the_formulas():
    questions = {each.id: each.answer for each in by_lab()["07"]}
    assert questions == pytest.approx(FORMULAS, rel=1e-2)


def test_the_figures_in_the_text_follow():
    assert crossing(4) / crossing(1) == pytest.approx(4, rel=0.01)
    old = convolution_share(net_layers("alexnet_2012").values())
    assert [round(100 * each, 1) for each in old] == [91.9, 3.8]
    assert DENSE == 263_562 and "263,562" in TEXT and "263,562" in PAGE
    assert (
        int(weird_trick_wins_below(9216, 58_631_144, 8)) == 795 and "795" in TEXT and "795" in PAGE
    )
    assert [sum(halo_rows(64, 8, 7, padding=3)[3]) / 8, segmented_share(4, 2)] == [0.75, 0.75]
    assert segmented_share(8, 1) == 1.75 and "0.75 |w| in place of 1.75 |w|" in TEXT
    assert max(halo_cells(64, 64, (4, 1), 3, padding=1)) == 128
    assert max(halo_cells(64, 64, (2, 2), 3, padding=1)) == 65
    assert halo_rows(24, 3, 3, padding=1) == [(0, 1), (1, 1), (1, 0)]
    assert halo_rows(24, 3, 3, stride=2, padding=1) == [(0, 0), (1, 0), (1, 0)]
    assert [channel_filter_words(1, 16, 16, 1, 1, *p) for p in ((1, 16), (4, 4))] == [15, 6]
    hybrid, data = one_weird_trick(64, 9216, 58_631_144, 8)
    assert data / hybrid == pytest.approx(12.4, abs=0.1) and "a twelfth" in TEXT
    assert halo_rows(32, 4, 5, padding=2)[1] == (2, 2)
    assert halo_rows(32, 4, 5, dilation=2, padding=4)[1] == (4, 4)


def test_the_path_leaves_rows_for_channels_and_filters():
    kinds = [CUTS[place].keys() for place in CHOSEN]
    spatial = [bool(each & {"H", "W"}) for each in kinds]
    assert spatial == sorted(spatial, reverse=True) and 5 < sum(spatial) < 25
    assert CUTS[WHICH] == {"N": 2, "C": 4} and "N" not in kinds[-1]
    assert [round(1e3 * each, 1) for each in (SINGLE, PATH)] == [12.6, 8.5] and "8.5 ms" in PAGE
    strips = sum(COSTS.seconds[:, 0]) + sum(each[0][0] for each in COSTS.switches)
    assert round(1e3 * strips, 1) == 24.1 and "24.1 ms" in PAGE


def test_the_explorer_answers_what_the_page_says():
    for cut, said in (("f", "82 ms"), ("c", "92.5 ms"), ("h", "163 ms"), ("n", "383 ms")):
        ranks = {"n": 1, "h": 1, cut: 8}
        answer = ConvolutionExplorer(layer="resnet_last", **ranks).payload()["answer"]
        assert f"takes {said} a step" in answer and said in PAGE
        assert (cut == "f") == ("7.52 times" in answer)


def sweep() -> ModuleType:
    """The script that recorded the trainings."""
    return loaded(RECORDED / "sweep.py")


def test_both_norms_were_recorded_at_five_rates_with_five_seeds():
    made = sweep()
    keys = {(row["method"], row["lr"], row["seed"]) for row in ROWS}
    assert keys == {(m, lr, seed) for m in made.METHODS for lr in made.RATES for seed in range(5)}
    assert {one.lr for one in BEST.values()}.isdisjoint({made.RATES[0], made.RATES[-1]})
    right = {name: median(one.right) / 3.6 for name, one in BEST.items()}
    for name, share in right.items():
        assert f"{share:.0f} %" in TEXT, name


@pytest.mark.parametrize("method", ["all rows", "own rows"])
def test_a_recorded_training_is_made_again(method):
    made = sweep()
    made.STEPS = 100
    first = next(
        row for row in ROWS if (row["method"], row["seed"], row["lr"]) == (method, 0, 0.05)
    )
    again = made.row(method, 0, 0.05)["losses"]
    assert len(again) == 2 and again == pytest.approx(first["losses"][:2], rel=0.05)


def test_the_stored_runs_have_what_the_text_says():
    sent = table("07_convolutions", '"KB a rank sends in a step"')
    plain, trick = sent["data parallel"], sent["one weird trick"]
    assert [plain[0], trick[0]] == [1624.164, 240.384] and plain[1] == trick[1]
    assert "240 KB in place of 1,624" in PAGE
    took = table("07_convolutions", "took.round(1)")
    assert took["all"][2] / took["slices"][2] == pytest.approx(4, abs=0.1)
    assert took["one"][2] == took["slices"][2]
    assert took["one"][0] / took["slices"][0] == pytest.approx(4, abs=0.2)
    parts = shown("07_convolutions", "pd.DataFrame(parts)").splitlines()[1:]
    assert [float(line.split()[-1]) for line in parts] == [0.75, 0.75, 0.5, 0.9375, 0.375]
    measured, predicted = table("07_convolutions", "times as fast as 1 rank")["N 2, H 4"]
    assert measured == pytest.approx(predicted, rel=0.25) and 5 < measured < 8

"""The prices and counts that the text of lab 02 states, each from the code that it is about."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import nbformat
import pytest
import torch

import dlviz
from dlviz.machine import Link, classroom
from dlviz.sim import collective_seconds

ROOT = Path(__file__).parents[2]
LAB = ROOT / "labs" / "02_collectives.ipynb"
TEXT = "\n".join(c.source for c in nbformat.read(LAB, as_version=4).cells)
PRICES = re.findall(r"^\| ([a-z].*) \| (.*n.*|0) \| (.*n.*) \| (.*n.*|0) \|$", TEXT, re.M)


@pytest.mark.parametrize("row", PRICES, ids=lambda row: row[0])
def test_the_table_of_prices_has_a_column_for_each_of_alpha_beta_and_gamma(row):
    name, *columns = row
    name = name.removeprefix("ring's ").replace("-", "_").replace(" ", "_")
    for place, told in enumerate(columns):
        costs = [float(place == n) for n in range(3)]
        found = re.sub(r"(\d)(?=[( ])", r"\1*", told).replace("lg n", "3").replace("n", "8")
        assert collective_seconds(name, 8, 1, *costs) == pytest.approx(eval(found)), told


def test_the_table_has_all_algorithms_that_a_single_link_prices_and_the_halves_of_the_ring():
    names = {row[0].replace("-", "_").replace(" ", "_") for row in PRICES}
    flat = {*dlviz.collectives.ALGORITHMS} - {"hierarchical"}
    assert names == flat | {"ring's_reduce_scatter", "ring's_all_gather"}


def test_the_sums_of_what_is_encoded_are_exact_in_every_order():
    rows = [dlviz.viz.encode(rank, 4, 8) for rank in range(4)]
    assert "multiples of 2⁻⁴⁰" in TEXT
    assert all((value * 2**40).is_integer() for row in rows for value in row)
    sums = {tuple(map(sum, zip(*order, strict=True))) for order in itertools.permutations(rows)}
    assert len(sums) == 1


def test_a_crossbar_needs_28_links_for_8_ranks():
    assert f"8 ranks need {math.comb(8, 2)} such links and 1,000 ranks half a million" in TEXT
    assert round(math.comb(1000, 2), -5) == 500_000


def served(comm) -> None:
    comm.barrier()
    dlviz.collectives.parameter_server.by_hand(comm, torch.ones(25_000))


@pytest.mark.filterwarnings("ignore:the run was up to")  # the device clock is never late
def test_the_port_of_the_server_is_never_free():
    trace = dlviz.launch(served, 4, machine=classroom(4, link=Link(2e-3, 1e7))).trace
    rows = trace.only(rank=0).spans.frame().sort_values("start").query("kind != 'collective'")
    assert rows.kind.tolist() == 3 * ["recv"] + 3 * ["send"]
    assert (rows.end - rows.start).tolist() == pytest.approx(6 * [0.012])
    assert rows.start.tolist()[1:] == pytest.approx(rows.end.tolist()[:-1])

"""The explorer of collectives without a browser: traits in, state out."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from contextlib import nullcontext
from itertools import pairwise
from time import perf_counter

import node
import numpy as np
import pytest
from kernel import ask
from matplotlib.figure import Figure

from dlviz import metrics, sim, viz
from dlviz.analysis.crossovers import near_cheapest
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.patterns import TITLES
from dlviz.viz.scene import Scene
from dlviz.widgets import CollectiveExplorer
from dlviz.widgets.background import meanwhile
from dlviz.widgets.collectives.all_reduce import (
    ALGORITHMS,
    COARSE,
    NEAR,
    SIZES,
    TOPOLOGIES,
    cells_of,
    curves,
    network,
    played,
    prediction,
    simulated,
)
from dlviz.widgets.collectives.explorer import details

LINK = {"alpha": 10e-6, "beta": 1e-9, "gamma": 1e-10}
FORMULAS = [name for name in ALGORITHMS if name != "hierarchical"]


@pytest.fixture(autouse=True)
def no_loop():
    """As in a script: a browser's driver leaves its loop running in the thread."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(running)


def state(explorer):
    return json.loads(explorer.state)


def priced(name, ranks, nbytes, link=LINK):
    return sim.collective_seconds(name, ranks, nbytes, *link.values())


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 7, 16])
def test_on_a_switch_the_lines_are_the_closed_forms(ranks):
    reported = state(CollectiveExplorer(ranks=ranks))
    for name in FORMULAS:
        expected = [priced(name, ranks, size) for size in SIZES]
        assert reported["curves"][name] == pytest.approx(expected, rel=1e-12)
    assert reported["curves"]["hierarchical"] == reported["curves"]["ring"]


def test_the_numbers_of_the_lecture_stand_in_the_table():
    """4 ranks, 10 us, 1 ns/B, 0.1 ns/B, 2^20 bytes."""
    reported = state(CollectiveExplorer(nbytes=2**20))["now"]
    took = {name: row[0] * 1e6 for name, row in reported.items()}
    assert took["ring"] == pytest.approx(1711.5072)
    assert took["butterfly"] == pytest.approx(2326.8672)
    assert took["halving_doubling"] == pytest.approx(1691.5072)


def test_bandwidths_are_those_of_nccl_tests():
    explorer = CollectiveExplorer(ranks=6, nbytes=4096)
    for name, (took, algorithm, bus) in state(explorer)["now"].items():
        assert took == pytest.approx(priced("ring" if name == "hierarchical" else name, 6, 4096))
        assert algorithm == metrics.algorithm_bandwidth(4096, took)
        assert bus == metrics.bus_bandwidth("all_reduce", 6, 4096, took)


def test_an_algorithm_takes_over_where_the_lines_cross():
    (first, butterfly), (size, after) = state(CollectiveExplorer())["cheapest"]
    assert (first, butterfly, after) == (SIZES[0], "butterfly", "halving_doubling")
    assert priced(butterfly, 4, size) == pytest.approx(priced(after, 4, size), rel=1e-9)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("ranks", [4, 8, 13])
def test_who_is_called_the_cheapest_costs_5_percent_more_at_most_and_the_rest_is_not_worth_a_word(
    topology, ranks
):
    lines = curves(ranks, *LINK.values(), topology, fine=True)
    reported = near_cheapest(SIZES, lines, NEAR)
    assert len(reported) <= 5
    least = np.min([*lines.values()], axis=0)
    for place, size in enumerate(SIZES):
        name = next(name for start, name in reversed(reported) if start <= size)
        assert lines[name][place] <= least[place] * (1 + NEAR), (size, name)
    for (_, before), (start, after) in pairwise(reported):
        crossing = [np.interp(start, SIZES, lines[name]) for name in (before, after)]
        assert crossing[0] == pytest.approx(crossing[1], rel=1e-9)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_the_map_of_each_network_names_the_cheapest_at_every_ranks_and_size(topology):
    reported = json.loads(CollectiveExplorer(topology="ring").maps)
    assert reported["link"] == LINK and list(reported["of"])[0] == "ring"
    assert len(reported["of"][topology]) == 15
    for ranks, row in enumerate(reported["of"][topology], 2):
        assert len(row) == len(SIZES)
        for place in range(0, len(SIZES), 9):
            on = {"ranks": ranks, "nbytes": SIZES[place], "topology": topology, **LINK}
            took = {name: prediction(name, **on) for name in ALGORITHMS}
            assert took[ALGORITHMS[row[place]]] <= min(took.values()) * (1 + NEAR)


@pytest.mark.parametrize("link", [{}, {"alpha": 0.0}, {"beta": 0.0}, {"topology": "racks"}])
@pytest.mark.parametrize("ranks", [2, 4, 7])
def test_sentence_table_and_map_call_the_same_algorithm_the_cheapest(link, ranks):
    explorer = CollectiveExplorer(ranks=ranks, **link)
    reported, maps = state(explorer), json.loads(explorer.maps)["of"]
    row = maps[explorer.topology][ranks - 2]
    sizes = SIZES if explorer.topology == "switch" else COARSE
    marked = node.run(
        "collectives/state.js",
        "const [data, places] = v; return places.map((place) => {"
        "  const now = Object.fromEntries("
        "    data.algorithms.map((name) => [name, [data.curves[name][place]]]));"
        "  return data.algorithms.filter((name) => m.isCheapest({ ...data, now }, name)); });",
        reported,
        [SIZES.index(size) for size in sizes],
    )
    for size, names in zip(sizes, marked, strict=True):
        named = next(name for start, name in reversed(reported["cheapest"]) if start <= size)
        assert named in names and named == ALGORITHMS[row[SIZES.index(size)]]


@pytest.mark.parametrize("topology", [name for name in TOPOLOGIES if name != "switch"])
@pytest.mark.parametrize("ranks", [4, 5])
def test_on_other_topologies_the_lines_are_played_finely_once_the_reader_pauses(topology, ranks):
    def expected(name, sizes):
        each = [simulated(name, ranks, size, topology=topology, **LINK) for size in sizes]
        return [metrics.makespan(trace) for trace in each]

    explorer = CollectiveExplorer(ranks=ranks)
    explorer.topology = topology
    coarse = state(explorer)
    assert not coarse["settled"] and coarse["about"] == "simulated at 5 sizes so far"
    assert ask(explorer, "settle") == {}
    fine = state(explorer)
    assert fine["settled"] and fine["about"] == "simulated"
    where = [SIZES.index(size) for size in COARSE]
    for name in ALGORITHMS:
        found = np.array(coarse["curves"][name])[where]
        np.testing.assert_allclose(found, expected(name, COARSE), rtol=1e-12)
        assert fine["curves"][name] == pytest.approx(expected(name, SIZES), rel=1e-12)
    explorer.nbytes = SIZES[3]
    assert state(explorer)["curves"] == fine["curves"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_few_cells_take_as_long_as_the_whole_tensor(name):
    ranks, nbytes = 6, 12 * 1000
    for topology in TOPOLOGIES:
        on = Machine(
            Device("whole", 1e9, 1e9, 1e9, LINK["gamma"]),
            network(ranks, Link(LINK["alpha"], 1 / LINK["beta"]), topology),
        )
        whole = metrics.makespan(sim.collective(name, ranks, nbytes, on))
        few = metrics.makespan(simulated(name, ranks, nbytes, topology=topology, **LINK))
        assert few == pytest.approx(whole, rel=1e-9)


def cases():
    """Every algorithm with every topology and every number of ranks; all triples in a sweep."""
    for a, name in enumerate(ALGORITHMS):
        for t, topology in enumerate(TOPOLOGIES):
            for r, ranks in enumerate((2, 3, 5, 8, 13)):
                wide = () if (a + t) % 5 == r else pytest.mark.sweep
                yield pytest.param(name, ranks, topology, marks=wide)


@pytest.mark.parametrize(("name", "ranks", "topology"), [*cases()])
def test_what_is_played_ends_with_every_contribution_once_on_every_rank(name, ranks, topology):
    trace = played(algorithm=name, ranks=ranks, nbytes=2**20, topology=topology, **LINK)
    trace.validate()
    scene = Scene(trace)
    last = scene.frames[-1].snapshots
    assert sorted(last) == list(range(ranks))
    for place in last.values():
        assert (viz.decode(trace.buffers[place]["array"], ranks) == 1).all()
    for number in range(len(scene.frames)):
        assert not scene.oddities(number) and not scene.losses(number)
    many = len({*trace.messages.step.tolist()})
    rounds = [f"round {i} of {many}" for i in range(1, many + 1)]
    assert [frame.name for frame in scene.frames] == ["start", *rounds]


def test_more_ranks_than_numbers_can_distinguish_are_played_in_the_same_rounds():
    trace = played(algorithm="ring", ranks=16, nbytes=2**20, topology="switch", **LINK)
    names = [frame.name for frame in Scene(trace).frames]
    assert not trace.buffers and names == ["start", *(f"round {i} of 30" for i in range(1, 31))]


def test_the_messages_have_the_bytes_of_the_whole_tensor():
    trace = played(algorithm="ring", ranks=4, nbytes=2**20, topology="switch", **LINK)
    assert metrics.bytes_sent(trace).tolist() == [3 * 2**19] * 4


def test_a_change_of_a_trait_changes_the_state():
    explorer = CollectiveExplorer()
    for name, value in {
        "ranks": 6, "nbytes": 4096, "alpha": 1e-4, "beta": 2e-9, "gamma": 0.0,
        "topology": "racks", "algorithm": "tree",
    }.items():  # fmt: skip
        before = state(explorer)
        setattr(explorer, name, value)
        reported = state(explorer)
        assert reported["controls"] == {**before["controls"], name: value}
        same = name in ("algorithm", "nbytes")
        assert (reported["curves"] == before["curves"]) == same
        if name != "algorithm":
            assert reported["now"] != before["now"]


def test_the_messages_follow_when_they_are_asked_for():
    explorer = CollectiveExplorer()
    before = explorer.player
    explorer.algorithm = "tree"
    assert explorer.player == before
    ask(explorer, "settle")
    reported = json.loads(explorer.player)
    assert (
        reported["title"] == "tree, message by message" and reported["topology"]["kind"] == "switch"
    )
    explorer.algorithm = "halving_doubling"
    explorer.settle()
    assert json.loads(explorer.player)["title"] == "halving-doubling, message by message"


def ahead(explorer):
    return json.loads(json.dumps(ask(explorer, "ahead")["ahead"]))


@pytest.mark.parametrize("topology", ["switch", "racks"])
def test_the_lines_of_other_ranks_are_sent_ahead_not_yet_fine(topology):
    explorer = CollectiveExplorer(topology=topology)
    reported = ahead(explorer)
    assert reported["link"] == {**LINK, "topology": topology}
    assert sorted(map(int, reported["ranks"])) == list(range(2, 17))
    for ranks in (2, 5, 16):
        explorer.ranks = ranks
        own, answer = reported["ranks"][str(ranks)], state(explorer)
        assert own["cheapest"] == answer["cheapest"]
        for name in ALGORITHMS:
            assert own["curves"][name] == pytest.approx(answer["curves"][name], rel=1e-5)
    before = json.loads(explorer.maps)["of"]
    explorer.alpha = 1e-3
    assert ahead(explorer)["link"] == {**LINK, "topology": topology}
    ask(explorer, "settle")  # the reader has paused
    assert ahead(explorer)["link"]["alpha"] == 1e-3
    assert json.loads(explorer.maps)["link"]["alpha"] == 1e-3
    for other, rows in json.loads(explorer.maps)["of"].items():
        assert rows != before[other], other


@pytest.mark.parametrize(
    ("wrong", "law"),
    [
        ({"algorithm": "rings"}, "algorithm='rings' is unknown: use one of ring, "),
        ({"topology": "mesh"}, "topology='mesh' is unknown: use one of switch, "),
        ({"topology": []}, "topology=\\[\\] is unknown: use one of switch, "),
        ({"ranks": 1}, "ranks=1 has to be a whole number from 2 to 16"),
        ({"ranks": 4.5}, "ranks=4.5 has to be a whole number"),
        ({"nbytes": 0}, "nbytes=0 has to be a whole number from 100 to "),
        ({"alpha": "abc"}, "alpha='abc' has to be a number, from 0 to 1 s"),
        ({"beta": -1e-9}, "beta=-1e-09 has to be a number, from 0 to 1 s"),
        ({"gamma": float("nan")}, "gamma=nan has to be a number, from 0 to 1 s"),
        ({"alpha": 0, "beta": 0}, "alpha and beta are both 0"),
    ],
)
def test_an_invalid_value_shows_an_error_of_one_sentence_and_changes_nothing(wrong, law):
    with pytest.raises(ValueError, match=law):
        CollectiveExplorer(**wrong)
    explorer = CollectiveExplorer()
    before = state(explorer)
    for name, value in wrong.items():
        setattr(explorer, name, value)
    reported = state(explorer)
    assert re.search(law, reported["error"]) and "\n" not in reported["error"]
    if len(wrong) == 1:
        assert reported["curves"] == before["curves"]
    for name in wrong:
        setattr(explorer, name, before["controls"][name])
    explorer.ranks = 5
    assert state(explorer)["error"] == "" and state(explorer)["controls"]["ranks"] == 5


def test_a_value_set_right_again_is_answered_and_the_complaint_goes():
    """A front end waits for the answer to one change before it sends the next."""
    explorer = CollectiveExplorer()
    for wrong in ("abc", 7.0):
        explorer.alpha = wrong
        before = state(explorer)
        explorer.alpha = LINK["alpha"]
        assert before["error"] and state(explorer)["error"] == ""


def test_what_goes_wrong_in_a_run_is_shown_in_one_sentence():
    explorer = CollectiveExplorer(ranks=9)
    explorer.run()
    assert state(explorer)["run"] == {"error": "9 ranks are too many to run here: use 8 or fewer."}
    assert explorer.measured is None


@pytest.mark.slow
def test_run_it_measures_and_says_how_far_it_is_from_predicted():
    explorer = CollectiveExplorer("halving_doubling", ranks=4)
    explorer.run()
    ran = state(explorer)["run"]
    assert ran["predicted"] == pytest.approx(priced("halving_doubling", 4, 10**6))
    assert ran["measured"] == explorer.measured == pytest.approx(ran["predicted"], rel=0.5)
    assert "slowed down" in " ".join(ran["summary"])
    assert "upper bound" not in " ".join(ran["summary"])
    explorer.ranks = 3
    assert state(explorer)["run"] is None and explorer.measured is None


@pytest.mark.parametrize("ranks", range(2, 17))
def test_no_algorithm_has_more_cells_than_it_cuts_a_tensor_into(ranks):
    cells = {name: cells_of(name, ranks, "switch") for name in ALGORITHMS}
    assert max(cells.values()) == ranks and min(cells.values()) >= 2
    for name in ("ring", "halving_doubling"):
        counts = simulated(name, ranks, 2**20, topology="switch", **LINK).messages.count
        assert counts.min() == 1


def test_a_saved_page_holds_the_messages_of_every_algorithm():
    explorer = CollectiveExplorer(ranks=3)
    explorer.topology = "ring"
    saved = explorer.saved_state()
    assert list(saved["players"]) == list(ALGORITHMS)
    for name, reported in saved["players"].items():
        reported = json.loads(reported)
        assert reported["title"].startswith(TITLES[name]) and reported["topology"]["kind"] == "ring"
    assert saved["player"] == saved["players"]["ring"]
    assert {*json.loads(saved["maps"])["of"]} == {*TOPOLOGIES} and len(saved["maps"]) < 6000


def test_the_picture_for_paper_shows_every_line_and_the_size():
    figure = CollectiveExplorer(nbytes=2**16).picture()
    assert isinstance(figure, Figure)
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert len(lines) >= len(ALGORITHMS) + 2
    figure.savefig("/dev/null", format="png")


def test_where_the_hierarchical_line_jumps_a_port_is_needed_anew_and_the_details_say_so():
    link = {"alpha": 10e-6, "beta": 1e-9, "gamma": 1e-10}
    short, long = (simulated("hierarchical", 4, n, topology="racks", **link) for n in (5000, 5200))
    assert metrics.makespan(long) > metrics.makespan(short) + 100e-6

    def last(trace):
        """The latest message over the shared link to rank 3: when sent, how long after that and
        after the one from rank 2 before it."""
        at = trace.messages.frame().query("dst == 3").sort_values("sent")
        over, beside = (at[at.src == src].iloc[-1] for src in (1, 2))
        return over.arrived - over.sent, over.arrived - beside.arrived

    own = 100e-6 + 1300 * 10e-9
    assert last(short)[0] == pytest.approx(100e-6 + 1250 * 10e-9)
    assert last(long)[0] > 1.8 * own and last(long)[1] == pytest.approx(own)
    said = {name: " ".join(details(name)) for name in TOPOLOGIES}
    words = "there the line of the hierarchical all-reduce jumps"
    assert [name for name in said if words in said[name]] == ["racks", "tree"]


def test_racks_of_an_odd_number_of_ranks_are_two():
    assert str(network(5, Link(1e-5, 1e9), "racks")) == "in 2 racks"
    assert [network(5, Link(1e-5, 1e9), "racks").node(rank) for rank in range(5)] == [0, 0, 0, 1, 1]
    assert isinstance(network(7, Link(1e-5, 1e9), "tree"), Topology)


def test_a_kernel_answers_while_it_looks_ahead_and_begins_again_for_another_link():
    async def kernel():
        explorer = CollectiveExplorer(topology="racks", beta=2e-9)
        first = explorer._ahead
        assert not first.done() and explorer.maps == "{}"
        explorer.beta = 3e-9
        ask(explorer, "settle")
        assert first.cancelled() and not explorer._ahead.done()
        waits = []
        while len(json.loads(explorer.maps).get("of", [])) < 2:
            began = perf_counter()
            await asyncio.sleep(0)  # a message would be answered
            waits.append(perf_counter() - began)
        assert ahead(explorer)["link"] == {**LINK, "topology": "racks", "beta": 3e-9}
        assert list(json.loads(explorer.maps)["of"])[0] == "racks"
        assert max(waits) < sum(waits) / 4
        explorer.topology = "switch"
        ask(explorer, "settle")
        saved = json.loads(explorer.saved_state()["maps"])
        assert {*saved["of"]} == {*TOPOLOGIES} and saved["link"]["beta"] == 3e-9

    asyncio.run(kernel())


def test_nothing_is_looked_ahead_while_ranks_run():
    ended = asyncio.Event()

    async def kernel():
        steps, free = iter_of(50), [False]  # ranks run at first
        meanwhile(steps, lambda: free[0], nullcontext())
        await asyncio.sleep(0.05)
        assert next(steps) == 0
        free[0] = True
        await asyncio.wait_for(ended.wait(), 20)

    def iter_of(count):
        yield from range(count)
        ended.set()

    asyncio.run(kernel())


def test_what_is_looked_ahead_ends_for_a_thread_that_hears_the_front_end_meanwhile():
    begun, lock = threading.Event(), threading.RLock()

    def slow():
        begun.set()
        time.sleep(0.2)
        yield

    async def kernel():
        meanwhile(steps, lambda: True, lock)
        while steps.gi_frame:
            await asyncio.sleep(0.01)

    steps = slow()
    own = threading.Thread(target=lambda: asyncio.run(kernel()), daemon=True)
    own.start()
    assert begun.wait(20)
    with lock:
        steps.close()
    own.join(20)
    assert not own.is_alive()


NOW = "return m.foresee(v[0], {...v[0].controls, ...v[1]}, v[2]);"


def foreseen(reported, ahead, **changes):
    return node.run("collectives/state.js", NOW, reported, changes, ahead)


def test_another_size_and_other_ranks_are_foreseen_as_the_kernel_will_answer():
    explorer = CollectiveExplorer()
    reported, found = state(explorer), ahead(explorer)
    shown = foreseen(reported, found, algorithm="tree", nbytes=SIZES[7])
    explorer.algorithm, explorer.nbytes = "tree", SIZES[7]
    answer = state(explorer)
    assert shown["controls"] == answer["controls"] and shown["curves"] == answer["curves"]
    for name in ALGORITHMS:
        assert shown["now"][name] == pytest.approx(answer["now"][name], rel=1e-12)
    explorer.ranks = 7
    answer = state(explorer)
    for first in (reported, state(CollectiveExplorer(nbytes=SIZES[7]))):
        shown = foreseen(first, found, ranks=7, nbytes=SIZES[7])
        assert shown["cheapest"] == answer["cheapest"] and shown["controls"]["ranks"] == 7
        for name, (took, *_) in answer["now"].items():
            assert shown["curves"][name] == pytest.approx(answer["curves"][name], rel=1e-5)
            assert shown["now"][name] == [pytest.approx(took, rel=1e-5), None, None]


def test_the_lines_of_another_network_wait_for_the_kernel():
    explorer = CollectiveExplorer()
    reported, found = state(explorer), ahead(explorer)
    assert foreseen(reported, found, ranks=7, alpha=1e-3) == reported
    assert foreseen(reported, found, ranks=7, topology="racks") == reported
    assert foreseen(reported, {}, ranks=7) == reported


@pytest.mark.parametrize(("ranks", "live"), [(8, True), (9, True), (16, True), (16, False)])
def test_the_bar_says_how_many_ranks_can_be_run(ranks, live):
    reported = state(CollectiveExplorer(ranks=ranks))
    now = {"data": reported, "controls": reported["controls"], "live": live}
    said = node.run("collectives/words.js", "return m.ranWords(v[0]);", now)
    assert said == ("At most 8 ranks can be run here." if live and ranks > 8 else "")


@pytest.mark.parametrize("ranks", [13, 14, 16])
def test_messages_of_more_than_13_ranks_say_that_contents_cannot_be_distinguished(ranks):
    reported = json.loads(CollectiveExplorer(ranks=ranks).player)
    law = f"at most 13 ranks: of {ranks} ranks only messages are shown."
    assert any(law in line for line in reported["lines"]) == (ranks > 13)
    assert (reported["ranks"] == []) == (ranks > 13)


CHART = """
const own = linesOf(v[0]);
const chart = m.placed(own, 600, 320);
const at = ({ x, y }) => [chart.x(x), chart.y(y)];
return { lines: own.lines.map(({ name }, i) => [name, chart.points[i]]),
  measured: own.measured.map(at),
  crossed: crossedOf(v[0]).map(({ size, took }) => at({ x: size, y: took })) };
"""
OF_CHART = {"linesOf": "collectives/chart.js", "crossedOf": "collectives/chart.js"}
MAP = (
    "const box = { left: 56, right: 374, top: 8, bottom: 284 };"
    "const map = m.mapOf(v[0], v[1], box);"
    "return { ...map, spots: v[2].map(([x, y]) => map.found(x, y)) };"
)
BOXES = "return m.boxesOf(v[0], v[1], v[2]);"


def test_lines_are_drawn_at_their_numbers_and_marks_where_they_say():
    reported = state(CollectiveExplorer())
    reported["run"] = {"algorithm": "ring", "nbytes": 2**20, "measured": 2e-3}
    drawn = node.run("shared/lines.js", CHART, reported, also=OF_CHART)
    named = {reported["names"][name]: name for name in ALGORITHMS}
    lines = {named.get(name, name): np.array(points) for name, points in drawn["lines"]}
    x, y = lines["ring"].T
    slope, at = np.polyfit(np.log(SIZES), x, 1)
    assert np.allclose(x, slope * np.log(SIZES) + at)
    took = np.log(np.concatenate([reported["curves"][name] for name in ALGORITHMS]))
    heights = np.concatenate([lines[name][:, 1] for name in ALGORITHMS])
    down, top = np.polyfit(took, heights, 1)
    assert np.allclose(heights, down * took + top) and down < 0
    ((_, y),) = drawn["measured"]
    assert y == pytest.approx(down * np.log(2e-3) + top)
    (crossed,) = drawn["crossed"]
    size, after = reported["cheapest"][1]
    assert crossed[0] == pytest.approx(slope * np.log(size) + at)
    assert crossed[1] == pytest.approx(down * np.log(priced(after, 4, size)) + top, abs=1e-6)
    best = np.min([reported["curves"][name] for name in ALGORITHMS], axis=0)
    assert np.allclose(lines["the least"][:, 1], down * np.log(best) + top)


def test_the_map_is_covered_once_and_a_point_finds_its_ranks_and_size():
    explorer = CollectiveExplorer()
    reported = state(explorer)
    rows = json.loads(explorer.maps)["of"]["switch"]
    drawn = node.run("collectives/geometry.js", MAP, reported, rows, [[70, 275], [374, 12]])
    area = sum(part["width"] * part["height"] for part in drawn["parts"])
    box = drawn["box"]
    whole = (box["right"] - box["left"]) * (box["bottom"] - box["top"])
    assert area == pytest.approx(whole, rel=2e-3)  # sizes are whole bytes
    assert drawn["spots"][0]["ranks"] == 2 and drawn["spots"][1]["ranks"] == 16
    assert drawn["spots"][0]["place"] < 3 and drawn["spots"][1]["place"] == len(SIZES) - 1
    assert all(name["fits"] for name in drawn["names"])  # halving-doubling in its widest row
    named = {name["winner"] for name in drawn["names"]}
    assert named == {winner for row in rows for winner in row}
    assert [mark["value"] for mark in drawn["ranks"]] == list(range(2, 17, 2))


@pytest.mark.parametrize("width", [300, 395, 800])
def test_the_maps_of_four_networks_lie_apart_within_the_picture(width):
    boxes = node.run("collectives/geometry.js", BOXES, 4, width, 206)
    for box in boxes:
        assert 20 <= box["left"] < box["right"] <= width and 12 <= box["top"]
        assert box["bottom"] <= 206 - 16 and box["bottom"] - box["top"] > 70
    (a, b, c, d) = boxes
    assert a["right"] < b["left"] and c["right"] < d["left"] and b["bottom"] < c["top"] - 12
    rows = [[0] * len(SIZES)] * 15
    reported = {"sizes": SIZES, "limits": {"ranks": [2, 16]}, "algorithms": [*ALGORITHMS]}
    ranks = node.run("collectives/geometry.js", "return m.mapOf(...v);", reported, rows, a)["ranks"]
    assert [mark["value"] for mark in ranks] == [4, 8, 12, 16]
    assert all(one["at"] - other["at"] >= 14 for one, other in pairwise(ranks))

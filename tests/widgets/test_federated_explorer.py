"""The explorer of federated learning: what it predicts and runs, what cannot be, every control."""

from __future__ import annotations

import itertools
import json
import math
import re

import kernel
import node
import numpy as np
import pytest
from explorer_page import SETTLED, ExplorerPage, open_page, saved_pages
from timing import answered_within

from dlviz.widgets import FederatedExplorer
from dlviz.widgets.federated.prediction import (
    FIRST,
    KNOBS,
    LABELS,
    PARAMETERS,
    asked,
    client_bytes,
    client_seconds,
    dealt,
    delta,
    names,
    round_seconds,
    steps,
)
from dlviz.widgets.federated.recorded import CONTROLS, recorded
from dlviz.widgets.federated.run import FATES, arrivals, fates_of


def state(explorer):
    return json.loads(explorer.state)


# -- what is predicted -----------------------------------------------------------------------------
def test_who_has_which_digits_is_what_the_partition_deals():
    from dlviz.datasets import digits
    from dlviz.federated import partition

    labels = digits("train")[1]
    assert labels.bincount().tolist() == [*LABELS]
    for clients, alpha in itertools.product(KNOBS["clients"], KNOBS["alpha"]):
        parts = partition.dirichlet(labels, clients, alpha)
        assert (partition.table(labels, parts).numpy() == dealt(clients, alpha)).all()


def test_the_network_of_the_prediction_is_the_one_that_is_run():
    from dlviz.models import MLP
    from dlviz.widgets.federated.prediction import WIDTHS

    assert sum(p.numel() for p in MLP(WIDTHS).parameters()) == PARAMETERS


@pytest.mark.parametrize("deadline", [None, 2.0])
@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_a_round_lasts_the_mean_over_all_that_may_be_drawn(sigma, deadline):
    values = {**FIRST, "fraction": 0.3, "deadline": deadline, "sigma": sigma, "clip": 1.0}
    took, limit = client_seconds(values), deadline or math.inf
    if sigma:  # each on its own
        lasts = 0.0
        for drawn in itertools.product((False, True), repeat=10):
            asked = [t for t, one in zip(took, drawn, strict=True) if one]
            chance = 0.3 ** len(asked) * 0.7 ** (10 - len(asked))
            lasts += chance * min(max(asked, default=0.0), limit)
    else:
        lasts = np.mean([min(max(asked), limit) for asked in itertools.combinations(took, 3)])
    assert round_seconds(values) == pytest.approx(lasts)


@pytest.mark.parametrize("secure", [False, True])
def test_a_run_models_the_seconds_that_are_predicted(secure):
    values = {**FIRST, "alpha": 0.1, "secure": secure}  # client 2 has no digit
    out, back, _ = client_bytes(values, asked(values))
    sizes = dealt(10, 0.1).sum(axis=1).tolist()
    seen = [(1, out) if secure else (size, out + back) for size in sizes]  # by the server
    model = arrivals(values)
    took = [model.seconds(k, steps(values, many), nbytes) for k, (many, nbytes) in enumerate(seen)]
    expected = client_seconds(values)
    assert [t for t, size in zip(took, sizes, strict=True) if size] == pytest.approx(
        [t for t in expected if t]
    )


def test_epsilon_is_shown_only_with_noise_and_is_the_accountants():
    from dlviz.federated import epsilon

    explorer = FederatedExplorer(clients=100, fraction=0.1)
    reported = state(explorer)["predicted"]
    assert reported["epsilon"] == [] and "no ε" in reported["answer"]["trust"]
    kernel.ask(explorer, "change", values={"clip": 1, "sigma": 1})
    reported = state(explorer)["predicted"]
    of = [epsilon(1.0, 0.1, many, delta(explorer._now), clients=100) for many in range(1, 21)]
    assert reported["epsilon"] == of and f"{of[-1]:.3g} after 20" in reported["answer"]["trust"]
    assert delta(explorer._now) < 1 / 100


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"clients": 12}, "clients=12 is unknown: use one of 10, 100"),
        ({"rounds": True}, "rounds=True is unknown"),
        ({"secure": 1}, "secure=1 is unknown: use one of False, True"),
        ({"fraction": 0}, "fraction=0 is unknown: use one of 0.1,"),
        ({"batch": "all"}, "batch='all' is unknown"),
        ({"method": "mode"}, "method='mode' is unknown"),
        ({"secure": True, "method": "median"}, "The median compares the clients' updates, and und"),
        ({"secure": True, "method": "krum"}, "The Krum compares the clients' updates"),
        ({"secure": True, "fraction": 0.1}, "Secure aggregation of 1 client hides nothing"),
        ({"secure": True, "bits": 16}, "modulo 2^32, which 16 bits do not hold"),
        ({"sigma": 1.0}, "σ = 1 without clipping: the noise is σS"),
        (
            {"sigma": 1.0, "clip": 1.0, "secure": True},
            "σ = 1 under secure aggregation: a round for",
        ),
        ({"sigma": 1.0, "clip": 1.0, "method": "median"}, "σ = 1 with the median: ε is known of"),
        (
            {"method": "krum", "attackers": 0.2},
            "Krum against f = 2 attackers needs 2f + 3 = 7 clients, and the 5 that are asked "
            "tolerate 1",
        ),
        (
            {"method": "multi_krum", "attackers": 0.4, "fraction": 1.0},
            "multi-Krum against f = 4 attackers needs 2f + 3 = 11 clients, and the 10 that are "
            "asked tolerate 3",
        ),
        (
            {"method": "trimmed_mean", "attackers": 0.3},
            "trimmed mean against f = 3 attackers needs 2f + 1 = 7 clients",
        ),
        (
            {"method": "krum", "fraction": 0.1},
            "needs 2f + 3 = 3 clients, and the 1 that are asked are too few even without one",
        ),
    ],
)
def test_invalid_values_show_an_error_of_one_sentence_and_change_nothing(values, says):
    explorer = FederatedExplorer()
    before = state(explorer)
    kernel.ask(explorer, "change", values=values)
    after = state(explorer)
    assert says in after["error"] and after["predicted"] == before["predicted"]
    kernel.ask(explorer, "change", values={name: FIRST[name] for name in values})
    assert state(explorer)["error"] == ""
    with pytest.raises(ValueError) as refused:
        FederatedExplorer(**values)
    assert says in str(refused.value)


def test_a_method_that_tolerates_the_attackers_is_no_error():
    for method, share in (("krum", 0.3), ("multi_krum", 0.3), ("trimmed_mean", 0.4)):
        FederatedExplorer(method=method, attackers=share, fraction=1.0)
    with pytest.raises(TypeError, match="FederatedExplorer has no 'client'"):
        FederatedExplorer(client=1)


FRESH = """
import sys, time
from dlviz.widgets import FederatedExplorer
explorer = FederatedExplorer(rounds=80, clip=1.0)
moves = {
    "C": [{"fraction": share / 10} for share in range(1, 9)],
    "α": [{"alpha": value} for value in (0.1, 0.2, 1.0, 2.0)],
    "100 clients": [{"clients": 100}, {"clients": 10}, {"clients": 100}],
    "σ": [{"sigma": value} for value in (0.1, 0.3, 0.5, 1.0, 2.0)],
    "σ, C": [{"fraction": share / 10} for share in range(1, 9)],
}
for name, changes in moves.items():
    took = []
    for change in changes:
        began = time.process_time()
        explorer._change(change)
        took.append(time.process_time() - began)
    print(name, min(took), sep=":")
assert not explorer._error and "torch" not in sys.modules
"""


def test_a_slider_is_answered_immediately_and_loads_no_torch():
    """Seconds of the processor; the least of changes that cost the same, whatever else it does."""
    answered_within(0.05, FRESH, controls=5)


def test_runs_are_named_by_what_distinguishes_them_from_most():
    assert names([FIRST]) == ["C 0.5, E 5, B 10"]
    others = [{**FIRST, "epochs": 1, "batch": None}, {**FIRST, "secure": True, "rounds": 10}]
    assert names([FIRST, *others]) == ["C 0.5, E 5, B 10", "E 1, B ∞", "10 rounds, secure"]
    assert names([others[1], FIRST, FIRST])[0] == "10 rounds, secure"
    assert names([FIRST, {**FIRST, "attack": "sign_flip"}])[1] == "C 0.5, E 5, B 10"  # nobody does
    attacked = {**FIRST, "attackers": 0.2}
    assert names([FIRST, attacked]) == ["C 0.5, E 5, B 10", "20 % attack, × −10"]
    assert names([attacked, FIRST])[1] == "0 % attack"


# -- what is run -----------------------------------------------------------------------------------
def record(**what):
    from dlviz.federated import Round

    none = Round(0, [], [], [], [], {}, [], [], 0, math.nan, "", 1.0, True)
    return none._replace(**what)


def test_who_is_at_an_answer_to_a_round_before_is_busy_and_not_late_again():
    rounds = [
        record(answered=[0], late=[1]),
        record(late=[1], rejected={2: "has no data"}),  # asked while it is at the first
        record(answered=[0], dropped=[1]),  # whose answer comes, though nobody asked it
        record(late=[1], lost=[0]),
    ]
    found = [[FATES[fate] if fate >= 0 else "" for fate in row] for row in fates_of(rounds, 3)]
    assert found == [
        ["answered", "", "answered", "lost"],
        ["late", "busy", "", "late"],
        ["", "rejected", "", ""],
    ]


def test_noise_is_added_to_the_sum_and_attackers_alone_send_what_is_false():
    import torch

    from dlviz.federated import robust
    from dlviz.widgets.federated.run import combined, dataset, outgoing

    rows = torch.arange(12.0).view(3, 4) - 5
    weights = torch.tensor([1.0, 2.0, 1.0])
    heard = []
    assert torch.equal(combined(FIRST, heard)(rows, weights), robust.mean(rows, weights))
    assert torch.equal(torch.stack(heard), rows)
    short = combined({**FIRST, "clip": 1.0}, heard)(rows, weights)
    assert torch.equal(short, robust.norm_bounded(rows, weights, bound=1.0))
    noisy = combined({**FIRST, "clip": 2.0, "sigma": 0.5}, heard)
    noise = noisy(torch.zeros(0, 50_000), torch.zeros(0))  # nobody came
    assert noise.std().item() == pytest.approx(0.5 * 2.0 / (0.5 * 10), rel=0.03)

    attacked = {**FIRST, "attackers": 0.2, "clip": 1.0, "secure": True}
    send = outgoing(attacked)  # the server cannot clip what it does not see
    honest, false = (send(rows[2], client, 7) for client in (2, 1))
    assert honest.norm().item() == pytest.approx(1) and torch.equal(false, -10 * honest)
    assert torch.equal(outgoing({**attacked, "attack": "sign_flip"})(rows[2], 0, 0), -honest)
    for client, labels in ((1, [9, 0]), (2, [0, 9])):
        of = dataset({**attacked, "attack": "flip_labels"}, rows[:2], torch.tensor([0, 9]), client)
        assert of[1].tolist() == labels


def test_under_secure_aggregation_every_round_is_summed_and_the_server_gets_residues_alone():
    """Its network is the plain run's, up to the rounding of residues, and so are its late clients;
    no update travels, and all bytes are those predicted."""
    from dlviz.federated.masked_rounds import SUMS
    from dlviz.federated.messages import UPDATE

    values = {"rounds": 10, "epochs": 1, "alpha": 2.0, "deadline": 1.0}
    plain, secret = FederatedExplorer(**values), FederatedExplorer(**values, secure=True)
    plain.run()
    secret.run()
    (opened,), (hidden,) = plain.runs, secret.runs
    assert hidden["fates"] == opened["fates"]
    assert {*sum(hidden["fates"], [])} >= {FATES.index("answered"), FATES.index("late")}
    assert hidden["accuracy"] == pytest.approx(opened["accuracy"], abs=1.01 / 360)
    assert secret.measured is not None and plain.measured is not None
    messages = secret.measured.messages
    assert not (messages.tag == UPDATE).any() and (plain.measured.messages.tag == UPDATE).any()
    summed = messages.tag >= SUMS
    assert {*messages.tag[summed]} == {SUMS + number for number in range(10)}
    asked = sum(fate >= 0 for row in hidden["fates"] for fate in row)
    busy = sum(fate == FATES.index("busy") for row in hidden["fates"] for fate in row)
    out = 4 * PARAMETERS * (asked - busy)
    assert hidden["nbytes"][-1] == out + int(messages.nbytes[summed].sum())


def test_bytes_of_a_run_are_those_predicted_and_the_server_sees_residues_alone():
    from dlviz.federated.masked_rounds import SUMS
    from dlviz.federated.messages import UPDATE, WEIGHTS

    explorer = FederatedExplorer(rounds=10, epochs=1, alpha=2.0, bits=16)
    predicted = state(explorer)["predicted"]
    explorer.run()
    (plain,) = explorer.runs
    trace = explorer.measured
    assert trace is not None and trace.meta["ranks"] == 2 and 0.5 < plain["accuracy"][-1] <= 1
    messages = trace.messages
    out, back = (int(messages.nbytes[messages.tag == tag].sum()) for tag in (WEIGHTS, UPDATE))
    assert (out, back) == (50 * 4 * PARAMETERS, 50 * 2 * PARAMETERS)
    assert plain["nbytes"] == [predicted["nbytes"] * many for many in range(1, 11)]
    assert plain["nbytes"][-1] == out + back

    kernel.ask(explorer, "change", values={"secure": True, "bits": 32})
    predicted = state(explorer)["predicted"]
    explorer.run()
    secret = explorer.runs[-1]
    each, summed = predicted["each"], secret["summed"]
    assert explorer.measured is not None
    messages = explorer.measured.messages
    own = messages.tag >= SUMS
    assert int(messages.nbytes[own].sum()) == 10 * 5 * (each["back"] + each["beside"])
    assert summed["sent"] + summed["got"] == each["back"] + each["beside"]
    assert own.sum() == 10 * 5 * 4 * 2 and summed["clients"] == 5
    assert secret["nbytes"][-1] == 10 * predicted["nbytes"]
    assert len(secret["saw"]) == len(plain["saw"]) == 5
    even = (PARAMETERS + 1) / 16
    for saw in secret["saw"].values():
        assert sum(saw) == PARAMETERS + 1
        assert sum((many - even) ** 2 / even for many in saw) < 80  # 15 degrees of freedom
    for saw in plain["saw"].values():
        assert sum((many - even) ** 2 / even for many in saw) > 1000


def test_a_deadline_closes_every_round_and_a_method_without_enough_clients_moves_nothing():
    values = {"fraction": 1.0, "alpha": 100.0, "slow": 0.4, "deadline": 2.0, "rounds": 10}
    explorer = FederatedExplorer(**values, method="krum", attackers=0.2)
    predicted = state(explorer)["predicted"]
    assert predicted["late"] == [6, 7, 8, 9] and predicted["lasts"] == 2.0
    explorer.run()
    reported = state(explorer)
    (run,) = reported["runs"]
    assert run["seconds"] == pytest.approx(np.arange(2.0, 22.0, 2.0))
    of = {client: {FATES[fate] for fate in row} for client, row in enumerate(run["fates"])}
    assert all(of[client] == {"answered"} for client in range(6))
    assert all(of[client] == {"late", "busy"} for client in predicted["late"])
    assert run["unchanged"] == [*range(10)]  # 6 came, of the 7 that Krum needs
    assert len(set(run["accuracy"])) == 1
    assert "10 of 10 rounds left the weights as they were: krum with" in run["notes"][1]

    explorer.stop()
    explorer.deadline = None
    assert reported["current"] == 0 and state(explorer)["current"] == -1
    explorer.deadline = 2.0
    assert state(explorer)["current"] == 0


RECORDED = recorded()["runs"]


@pytest.mark.parametrize(
    "place", [0, *(pytest.param(p, marks=pytest.mark.sweep) for p in (4, 5, 7))]
)
def test_a_recorded_run_is_what_its_controls_give(place):
    """Of accuracy up to what another processor's rounding may do; all else to the last digit."""
    stored = dict(RECORDED[place])
    explorer = FederatedExplorer(**stored["controls"])
    explorer.run()
    (own,) = explorer.runs
    assert stored.keys() == own.keys() - {"color", "dash", "recorded"}
    for name in ("controls", "nbytes", "seconds", "epsilon", "fates", "unchanged"):
        assert own[name] == stored[name], name
    assert own["accuracy"] == pytest.approx(stored["accuracy"], abs=0.03)
    assert stored["saw"].keys() == {str(client) for client in own["saw"]}


def test_recorded_runs_are_shown_and_named_as_such_until_there_is_another():
    assert [one["controls"] for one in RECORDED] == [{**FIRST, **own} for own in CONTROLS]
    explorer = FederatedExplorer()
    reported = state(explorer)
    assert all(one["recorded"] for one in reported["runs"]) and explorer.runs == []
    assert [one["accuracy"] for one in reported["runs"]] == [one["accuracy"] for one in RECORDED]
    assert (
        len({one["name"] for one in reported["runs"]}) == len(CONTROLS) and reported["current"] == 0
    )
    assert "python -m dlviz.widgets.federated.recorded, with dlviz" in reported["details"][-1]
    assert explorer.picture().texts[0].get_text() == "Test digits recognised, in recorded runs"
    kernel.ask(explorer, "change", values={"alpha": 0.1})
    assert state(explorer)["runs"][state(explorer)["current"]]["name"] == "α 0.1"
    explorer.rounds = 10
    assert state(explorer)["current"] == -1
    explorer.run()
    reported = state(explorer)
    assert [one["recorded"] for one in reported["runs"]] == [False] and reported["current"] == 0
    fraction = explorer.fraction
    title = f"Test digits recognised: mean, C = {fraction:g}"
    assert explorer.picture().texts[0].get_text() == title
    attacked = FederatedExplorer(attackers=0.2, fraction=1.0, rounds=10)
    attacked.run()
    title = attacked.picture().texts[0].get_text()
    assert title == "Test digits recognised: mean, C = 1, 2 of 10 clients attack"
    assert len(json.loads(explorer.saved_state()["pages"])) == 1
    kernel.ask(explorer, "change", values={"examples": True})  # the recorded ones come back
    reported = state(explorer)
    assert [one["recorded"] for one in reported["runs"]] == [False] + [True] * len(CONTROLS)
    assert len({(one["color"], one["dash"]) for one in reported["runs"]}) == len(reported["runs"])
    assert reported["current"] == 0 and len(json.loads(explorer.saved_state()["pages"])) == 10
    kernel.ask(explorer, "change", values={"examples": False})
    assert len(state(explorer)["runs"]) == 1


# -- what is drawn ---------------------------------------------------------------------------------
def made(name, many, **controls):
    """A run as the kernel sends it, of numbers of the test's own."""
    values = {**FIRST, **controls, "rounds": many}
    return {
        "controls": values, "name": name, "color": "#0072B2", "dash": "",
        "accuracy": [1 - 0.8 / (place + 1) for place in range(many)],
        "nbytes": [96_400 * (place + 1) for place in range(many)],
        "seconds": [1.5 * (place + 1) for place in range(many)],
        "epsilon": [3.0 * 1.5**place for place in range(many)] if values["sigma"] else [],
        "fates": [[(client + place) % 5 - 1 for place in range(many)] for client in range(10)],
        "unchanged": [], "saw": {"3": [1, 2, 3, 4] * 4}, "summed": None, "notes": [],
        "recorded": False,
    }  # fmt: skip


CHART = """
const [runs, across] = v;
const own = linesOf({ runs, current: 0 }, across);
const chart = m.placed(own, 430, 160);
return { ...chart, runs: own.runs, found: chart.points.map((points) =>
    points.map(([x, y]) => m.pointAt(chart.points, [x + 1, y - 1]))),
  far: m.pointAt(chart.points, [400, 120]) };
"""


@pytest.mark.parametrize("across", ["rounds", "nbytes", "seconds", "epsilon"])
def test_a_line_of_each_run_lies_along_the_axis_that_is_chosen(across):
    runs = [made("plain", 20), made("noise", 10, sigma=1.0, clip=1.0)]
    also = {"linesOf": "federated/chart.js"}
    chart = node.run("shared/lines.js", CHART, runs, across, also=also)
    assert chart["runs"] == ([1] if across == "epsilon" else [0, 1])  # without noise there is no ε
    box = chart["box"]
    for run, line, found in zip(chart["runs"], chart["points"], chart["found"], strict=True):
        points = np.array(line)
        assert len(points) == len(runs[run]["accuracy"])
        assert (np.diff(points[:, 0]) > 0).all() and (np.diff(points[:, 1]) < 0).all()
        assert (
            points[:, 0].max() <= box["right"] + 1e-6 and points[:, 0].min() >= box["left"] - 1e-6
        )
        assert points[:, 1].min() >= box["top"]
        for nearest in found:
            x, y = chart["points"][nearest["line"]][nearest["i"]]
            assert any(np.hypot(x - a, y - b) < 4 for a, b in points)
    assert chart["far"] is None
    at = [mark["at"] for mark in chart["across"]]
    assert len(at) >= 1 and at == sorted(at)


ROWS = """
const [predicted, run, how] = v;
const rows = m.rowsOf(predicted, run, how);
const middle = ({ x, y, width, height }) => [x + width / 2, y + height / 2];
const at = (box) => m.rowAt(rows, predicted.table.length, how.rounds, ...middle(box));
return { ...rows, marked: rows.marks.map((own) => [at(own), own]),
  labelled: rows.cells.map((own) => [at(own), own]),
  paths: rows.marks.map((own) => m.markOf(own.fate, own)) };
"""


def test_a_row_is_a_clients_labels_seconds_and_rounds_and_is_found_where_it_is_drawn():
    explorer = FederatedExplorer(deadline=2.0)
    reported = state(explorer)
    run = made("run", 20)
    how = {"saw": False, "parts": 16, "deadline": 2.0, "rounds": 20, "width": 809}
    rows = node.run("federated/geometry.js", ROWS, reported["predicted"], run, how)
    table = [[0] * 10 for _ in range(10)]
    for found, cell in rows["labelled"]:
        table[cell["client"]][cell["column"]] = cell["value"]
        assert found == {"client": cell["client"], "column": "cells", "round": -1}
    assert table == reported["predicted"]["table"]
    for found, mark in rows["marked"]:
        assert found == {"client": mark["client"], "column": "rounds", "round": mark["round"]}
        assert run["fates"][mark["client"]][mark["round"]] == mark["fate"]
        assert mark["x"] + mark["width"] <= 809
    assert len(rows["marked"]) == sum(fate >= 0 for row in run["fates"] for fate in row)
    assert not any("NaN" in path or "undefined" in path for path in rows["paths"])
    for bar, took in zip(rows["bars"], reported["predicted"]["seconds"], strict=True):
        assert (bar["x"] + bar["width"] > rows["limit"] + 1e-6) == (took > 2.0) == bar["late"]
    seen = node.run("federated/geometry.js", ROWS, reported["predicted"], run, {**how, "saw": True})
    assert [cell["client"] for _, cell in seen["labelled"]] == [3] * 16
    many = state(FederatedExplorer(clients=100))["predicted"]
    crowd = node.run("federated/geometry.js", ROWS, many, None, how)
    assert crowd["height"] == rows["height"] and not crowd["words"] and rows["words"]


# -- in a browser ----------------------------------------------------------------------------------
class Page(ExplorerPage):
    """What else this explorer has."""

    @property
    def answer(self):
        return self.root.locator(".dlv-cheapest").inner_text()

    @property
    def result(self):
        return self.root.locator(".dlv-result").inner_text()

    def tab(self, name):
        self.root.get_by_role("tab", name=name, exact=True).click()

    def pick(self, name, words):
        self.control(name).select_option(label=words)

    def height(self):
        return self.root.bounding_box()["height"]

    def lines(self):
        return self.root.locator(".dlv-chart .dlv-cost").count()

    def marks(self):
        """How many outlines the participation is drawn with."""
        paths = self.root.locator(".dlv-clients > path[fill]")
        return "".join(paths.evaluate_all("them => them.map((it) => it.getAttribute('d'))")).count(
            "M"
        )


CHANGES = {  # tab: control: what the reader does
    "Rounds": {
        "clients": lambda page: page.pick("clients", "100"),
        "clients again": lambda page: page.pick("clients", "10"),
        "rounds": lambda page: page.pick("rounds", "10"),
        "fraction": lambda page: page.slide("C, asked", 9),
        "epochs": lambda page: page.slide("E, epochs", 0),
        "batch": lambda page: page.slide("B, batch", 5),
        "bits": lambda page: page.pick("updates of", "16 bits"),
        "bits again": lambda page: page.pick("updates of", "32 bits"),
    },
    "Data and time": {
        "alpha": lambda page: page.slide("α, alike", 7),
        "slow": lambda page: page.slide("slow clients", 5),
        "deadline": lambda page: page.slide("deadline", 3),
        "no deadline": lambda page: page.slide("deadline", 8),
    },
    "Trust": {
        "clip": lambda page: page.slide("S, clip", 3),
        "sigma": lambda page: page.slide("σ, noise", 6),
        "no sigma": lambda page: page.slide("σ, noise", 0),
        "attackers": lambda page: page.slide("attackers", 2),
        "attack": lambda page: page.pick("they", "train on false labels"),
        "attack again": lambda page: page.pick("they", "send their update × \u221210"),
        "method": lambda page: page.pick("combined by", "Krum"),
        "mean": lambda page: page.pick("combined by", "mean"),
        "secure": lambda page: page.pick("secure aggregation", "on"),
    },
}


@pytest.mark.sweep  # test_every_explorer moves every control
@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_control_answers_and_what_ran_is_shown_without_a_kernel(browser, tmp_path, theme):
    explorer = FederatedExplorer(theme=theme)
    page, faults = open_page(browser, explorer, "federated/index", ["one"])
    shown = Page(page)
    assert shown.root.get_attribute("data-theme") == theme
    assert shown.lines() == len(CONTROLS) and shown.result.startswith("A recorded run. 96")
    parts = {"Rounds": "rounds", "Data and time": "data", "Trust": "trust"}
    for tab, changes in CHANGES.items():
        shown.tab(tab)
        assert shown.root.locator(".dlv-toolbar:visible").count() == 2  # all clients', and its own
        assert shown.root.locator("input[type=range]:visible").count() == 3
        for name, change in changes.items():
            before = state(explorer)["controls"]
            change(shown)
            page.wait_for_function(SETTLED)
            reported = state(explorer)
            assert reported["controls"] != before and not reported["error"], name
            assert shown.answer == reported["predicted"]["answer"][parts[tab]], name
            assert shown.height() <= 640, name
    shown.pick("combined by", "median")
    page.wait_for_function("() => document.querySelector('.dlv-trouble').textContent")
    assert "the server sees none of them" in shown.root.locator(".dlv-trouble").inner_text()
    assert shown.height() <= 640 and shown.control("run it on real ranks").is_disabled()
    shown.pick("combined by", "mean")
    page.wait_for_function(SETTLED)

    shown.control("run it on real ranks").click()
    page.wait_for_function(
        "() => document.querySelectorAll('.one .dlv-chart .dlv-cost').length === 1", timeout=90_000
    )
    assert shown.height() <= 640
    (run,) = explorer.runs
    assert f"{100 * run['accuracy'][-1]:.1f} %" in shown.root.locator(".dlv-runs").inner_text()
    assert "summed in secret" in shown.root.locator(".dlv-result").inner_text()
    assert shown.root.locator(".dlv-clients rect").count() > 16 * 2
    shown.pick("secure aggregation", "off")
    page.wait_for_function(SETTLED)
    assert shown.marks() == 0 and shown.lines() == 1  # its line stays, its rounds are another's
    shown.root.press("r")
    page.wait_for_function(
        "() => document.querySelectorAll('.one .dlv-chart .dlv-cost').length === 2", timeout=90_000
    )
    assert shown.root.locator(".dlv-runs tbody th").all_inner_texts() == [
        "C 1, E 1, B ∞",
        "in the open",
    ]
    assert shown.marks() and shown.height() <= 640
    for axis, ticks in (("bytes", "MB"), ("seconds, modelled", " s"), ("ε", ""), ("rounds", "")):
        shown.pick("over", axis)
        assert ticks in shown.root.locator(".dlv-chart svg").text_content()
        assert shown.lines() == (0 if axis == "ε" else 2)
    box = shown.root.locator(".dlv-spot").last.bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + 4)
    tip = shown.root.locator(".dlv-chart .dlv-tip")
    assert "after 10 rounds" in tip.inner_text() and "(modelled)" in tip.inner_text()
    box = shown.root.locator(".dlv-clients").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 25)
    tip = shown.root.locator(".dlv-sideways ~ .dlv-tip")
    assert tip.inner_text().startswith("client 0 (attacks)") and "modelled" in tip.inner_text()
    shown.root.press("n")  # the first run's controls
    page.wait_for_function(SETTLED)
    assert explorer.secure is True
    shown.root.press("t")
    assert shown.root.get_attribute("data-part") == "rounds"
    marks = shown.marks()
    page.close()

    with saved_pages(
        browser, tmp_path, Page, lambda own: own.wait_for_selector(".dlv-clients rect")
    ) as show:
        saved = show(explorer, width=833, height=680)
        assert saved.root.get_attribute("data-theme") == theme
        assert saved.lines() == 2 and saved.height() <= 640 and saved.marks() == marks
        assert saved.control("C, asked").is_disabled() and saved.control("clients").is_disabled()
        saved.root.locator(".dlv-runs button", has_text="in the open").click()
        assert (
            saved.root.locator(".dlv-runs [aria-selected=true]")
            .inner_text()
            .startswith("in the open")
        )
        assert saved.marks() and "summed in secret" not in saved.root.inner_text()
        saved.tab("Trust")
        assert "2 of 10 clients" in saved.answer and "Secure" not in saved.answer
        assert saved.height() <= 640
    assert not faults


@pytest.mark.slow
def test_recorded_runs_replay_on_a_page_that_was_saved_without_a_run(browser, tmp_path):
    with saved_pages(
        browser, tmp_path, Page, lambda own: own.wait_for_selector(".dlv-clients rect")
    ) as show:
        saved = show(FederatedExplorer(), width=833, height=680)
        names = saved.root.locator(".dlv-runs tbody th").all_inner_texts()
        assert saved.root.locator(".dlv-runs thead th").first.inner_text() == "recorded run"
        assert len(names) == saved.lines() == len(CONTROLS)
        marks = set()
        for name, run in zip(names, RECORDED, strict=True):
            saved.root.get_by_role("button", name=name, exact=True).click()
            reported = re.escape(" ".join(["A recorded run.", *run["notes"]]))
            beside = "All rounds: [^;]+ predicted[^;]*; modelled [^;]+ predicted[^;]*"
            assert re.fullmatch(rf"{reported} {beside}\.", saved.result)
            chosen = saved.root.locator(".dlv-runs [aria-selected=true] th").inner_text()
            assert chosen == name and saved.height() <= 640
            marks.add(saved.marks())
        assert len(marks) == 3 and 0 not in marks  # who takes part is of the run
        box = saved.root.locator(".dlv-spot").first.bounding_box()
        saved.root.page.mouse.move(box["x"] + 4, box["y"] + 4)
        assert "(recorded)" in saved.root.locator(".dlv-chart .dlv-tip").inner_text()

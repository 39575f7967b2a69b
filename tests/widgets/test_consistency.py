"""The explorer of consistency: what it predicts and runs, a moment of it, and every control."""

from __future__ import annotations

import json

import kernel
import node
import numpy as np
import pytest
from explorer_page import SETTLED, ExplorerPage, open_page, saved_pages
from timing import attempts

from dlviz.widgets import ConsistencyExplorer
from dlviz.widgets.consistency.strategies import KNOBS, METHODS, SHOWN, figures
from dlviz.widgets.control import Choice

TWO = {"workers": 2, "slow": 1.7}  # whose pushes never arrive together


def state(explorer):
    return json.loads(explorer.state)


@pytest.mark.parametrize(
    ("method", "names"),
    [("async_server", {"server", "worker 1", "worker 4"}), ("gossip", {"worker 0", "worker 3"})],
)
def test_the_still_picture_calls_its_rows_what_the_widget_calls_them(method, names):
    (axes,) = ConsistencyExplorer(method).picture().axes
    shown = {name.get_text() for name in axes.get_yticklabels()}
    assert shown >= names and not any("rank" in name for name in shown)


def test_it_says_what_a_slow_worker_costs_and_how_old_gradients_are():
    """A gradient takes 60 ms, a message half a millisecond."""
    reported = {method: state(ConsistencyExplorer(method))["predicted"] for method in METHODS}
    assert reported["sync_server"]["rate"] == pytest.approx(4 / 0.18, rel=0.03)
    assert reported["async_server"]["rate"] == pytest.approx(3 / 0.06 + 1 / 0.18, rel=0.03)
    assert reported["async_server"]["staleness"] == pytest.approx(3, rel=0.03)
    assert reported["sync_server"]["staleness"] == 0
    *others, slow = reported["sync_server"]["workers"]
    assert slow["waiting"] < 0.05 and all(
        one["waiting"] == pytest.approx(2 / 3, abs=0.03) for one in others
    )
    for method in ("local_sgd", "gossip"):
        assert reported[method]["staleness"] is None
    backed = state(ConsistencyExplorer("sync_server", backups=1))["predicted"]
    assert backed["rate"] == pytest.approx(50, rel=0.05) and backed["workers"][-1]["rate"] == 0


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("method", "ddp", "method='ddp' is unknown"),
        ("workers", 9, "workers=9 has to be a whole number from 1 to 8"),
        ("workers", True, "workers=True has to be"),
        ("slow", 0.5, "slow=0.5 has to be 1 to 5"),
        ("slow", "very", "slow='very' has to be"),
        ("slowed", "sometimes", "slowed='sometimes' is unknown"),
        ("backups", 4, "backups=4 of 4 workers leave nobody"),
        ("bound", -1, "bound=-1 has to be a whole number from 0 to 8"),
        ("every", 0, "every=0 has to be a whole number from 1 to 8"),
        ("form", "in turn", "form='in turn' is unknown"),
        ("topology", "star", "topology='star' is unknown"),
        ("alpha", 0.3, "alpha=0.3 is unknown: use one of 0.01,"),
    ],
)
def test_an_invalid_value_shows_an_error_and_changes_nothing(name, value, says):
    explorer = ConsistencyExplorer("sync_server")
    before = state(explorer)
    setattr(explorer, name, value)
    after = state(explorer)
    assert says in after["error"] and after["predicted"] == before["predicted"]
    setattr(explorer, name, before["controls"][name])
    assert state(explorer)["error"] == ""
    with pytest.raises(ValueError, match=says):
        ConsistencyExplorer(**{"method": "sync_server", name: value})


def test_what_a_method_cannot_do_with_so_many_workers_is_an_error():
    with pytest.raises(ValueError, match="3 leave one over"):
        ConsistencyExplorer("gossip", workers=3, topology="matching")
    with pytest.raises(TypeError, match="ConsistencyExplorer has no 'server'"):
        ConsistencyExplorer(server=1)


def test_controls_that_change_together_are_played_together():
    explorer = ConsistencyExplorer()
    values = {"method": "stale_synchronous", "workers": 6, "slow": 2.0, "bound": 3}
    assert kernel.ask(explorer, "change", values=values) == {}
    reported = state(explorer)
    assert reported["controls"] | values == reported["controls"]
    assert reported["predicted"] == state(ConsistencyExplorer(**values))["predicted"]
    other = {"workers": 2, "slow": 9}  # one of them cannot be, so neither is
    assert "slow=9" in kernel.ask(explorer, "change", values=other)["error"]
    assert state(explorer)["controls"] == reported["controls"]


@pytest.mark.parametrize("method", METHODS)
def test_a_knob_changes_what_its_method_predicts(method):
    """But for alpha, which changes what is learnt and takes no time."""
    for option, knob in ((knob.name, knob) for knob in KNOBS[method]):
        first, *_, last = [*(knob.options if isinstance(knob, Choice) else knob.values)][:4]
        reported = [
            state(ConsistencyExplorer(method, **{option: value}))["predicted"]
            for value in (first, last)
        ]
        assert (reported[0] == reported[1]) == (option == "alpha"), option


def test_the_figures_of_a_run_are_by_its_wall_clock():
    """On a machine that takes twice as long for everything."""
    trace = ConsistencyExplorer("sync_server").trace
    spans, messages = trace.spans, trace.messages
    spans.wall_start[:], spans.wall_end[:] = 2 * spans.start, 2 * spans.end
    messages.wall_sent[:], messages.wall_received[:] = 2 * messages.sent, 2 * messages.received
    device, wall = (figures(trace, 1, clock) for clock in ("device", "wall"))
    assert wall["rate"] == pytest.approx(device["rate"] / 2)
    waits = [[one["waiting"] for one in side["workers"]] for side in (device, wall)]
    assert waits[1] == pytest.approx(waits[0], abs=0.01)  # ports are none of the wall clock's


@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine
def test_a_run_is_laid_over_and_shown_again_where_its_controls_are():
    explorer = ConsistencyExplorer("async_server", **TWO)
    for attempt in attempts():
        with attempt:
            explorer.run()
            reported = state(explorer)
            measured, predicted = reported["run"]["side"], reported["predicted"]
            times = predicted["applied"]["time"]
            assert measured["applied"]["time"] == pytest.approx(times, rel=0.01)
    assert len(times) == 32
    assert explorer.measured.meta["clock"] == "paced"
    explorer.workers = 3
    assert state(explorer)["run"] is None and explorer.measured is None
    explorer.bound = 5  # no matter to this method
    explorer.workers = 2
    assert state(explorer)["run"] == reported["run"]
    (page,) = json.loads(explorer.saved_state()["pages"])
    assert page["state"] == {"run": reported["run"], "predicted": predicted}
    explorer.slow = 2.0
    assert state(explorer)["run"] is None


def shown_side(**values):
    """A side as the kernel sends it, and the Trace that it is of."""
    explorer = ConsistencyExplorer(**values)
    return state(explorer)["predicted"], explorer.trace


MOMENTS = [0.0, 0.0301, 0.0603, 0.0607, 0.1, 0.1807, 0.3333, 0.5, 0.8]


@pytest.mark.parametrize("method", ["sync_server", "async_server", "gossip"])
def test_a_moment_shows_what_each_rank_does_then(method):
    side, trace = shown_side(method=method)
    doing = node.run(
        "consistency/geometry.js",
        "const side = readSide(v[0]); return v[1].map((at) => m.doingAt(side, at));",
        side,
        MOMENTS,
        also={"readSide": "consistency/state.js"},
    )
    spans, messages = trace.spans, trace.messages
    leaves = np.isin(spans.kind, SHOWN)
    for at, found in zip(MOMENTS, doing, strict=True):
        for one in found:
            own = leaves & (spans.rank == one["rank"]) & (spans.start <= at) & (at < spans.end)
            kinds = spans.kind[own].tolist()
            assert ([SHOWN[one["kind"]]] if one["kind"] >= 0 else []) == kinds, (at, one)
            if method != "gossip" and one["rank"]:
                pushed = (messages.src == one["rank"]) & (messages.received <= at)
                assert one["clock"] == pushed.sum()


def test_a_message_moves_from_its_sender_to_its_receiver_and_waits_there():
    side, trace = shown_side(method="sync_server", workers=8)
    row = int(np.flatnonzero(trace.messages.dst == 0)[3])
    sent, arrived = trace.messages.sent[row], trace.messages.arrived[row]
    times = [sent - 2e-6, sent + 2e-6, (sent + arrived) / 2, trace.messages.received[row] + 2e-6]
    src = int(trace.messages.src[row])
    found = node.run(
        "consistency/geometry.js",
        "const side = readSide(v[0]); const spots = m.spotsOf(side, 200);"
        "return { spots, dots: v[1].map((at) => m.dotsAt(side, at, spots)) };",
        side,
        times,
        also={"readSide": "consistency/state.js"},
    )
    spots = found["spots"]
    mine = [[dot for dot in dots if dot["src"] == src] for dots in found["dots"]]
    assert [len(dots) for dots in mine] == [0, 1, 1, 0]
    away = [np.hypot(d["x"] - spots[0]["x"], d["y"] - spots[0]["y"]) for (d,) in mine[1:3]]
    assert away[0] > away[1] > spots[0]["radius"]
    assert all(dot["push"] for (dot,) in mine[1:3])


def test_playing_takes_its_time_over_messages_and_comes_to_the_end():
    side, _ = shown_side(method="async_server", workers=2)
    found = node.run(
        "consistency/geometry.js",
        """const side = readSide(v[0]);
        const frames = [0];
        while (frames.at(-1) < side.last) frames.push(m.advanced(side, frames.at(-1), 16));
        const whole = m.advanced(side, 0, 1e9);
        const first = side.messages.sent[0];
        const [before, during] = [0.01, first].map((at) => m.advanced(side, at, 16) - at);
        const forth = [0];
        while (forth.at(-1) < side.last) forth.push(m.stepped(side, forth.at(-1), true));
        const back = [side.last];
        while (back.at(-1) > 0) back.push(m.stepped(side, back.at(-1), false));
        const { last, edges } = side;
        return { frames, whole, last, before, during, forth, back, edges };""",
        side,
        also={"readSide": "consistency/state.js"},
    )
    assert (np.diff(found["frames"]) > 0).all() and found["frames"][-1] == found["last"]
    assert found["whole"] == found["last"]
    assert found["before"] == pytest.approx(16 * 4e-5)
    assert found["during"] == pytest.approx(16 * 1.25e-6)
    steps = sorted({0, *found["edges"], found["last"]})
    assert found["forth"] == steps and found["back"] == steps[::-1]


def test_what_was_measured_lies_below_what_was_predicted():
    predicted, _ = shown_side(method="async_server")
    measured, _ = shown_side(method="async_server", slow=2.0)
    rows = node.run(
        "consistency/state.js",
        """const [a, b] = v.map(m.readSide);
        const { rows, times, sideOf } = m.drawnOf(a, b, 6);
        const of = rows.slots.map(({ first }) => [sideOf(first)[0] === b, sideOf(first)[1]]);
        return { ...rows, start: times.start, of, first: [a.first, b.first] };""",
        predicted,
        measured,
    )
    upper, lower = rows["slots"][:5], rows["slots"][5:]
    for rank, (above, below, row) in enumerate(zip(upper, lower, rows["rows"], strict=True)):
        assert above["row"] == below["row"] == rank
        assert row["top"] == above["top"] and above["bottom"] == below["top"]
        assert below["bottom"] == row["bottom"]
    assert [own for own, _ in rows["of"]] == [False] * 5 + [True] * 5
    assert [i for _, i in rows["of"]] == [*rows["first"][0][:5], *rows["first"][1][:5]]
    assert rows["start"] == predicted["start"] + measured["start"]
    assert [row["label"] for row in rows["rows"][:2]] == ["server", "worker 1"]


class Page(ExplorerPage):
    """What else this explorer has."""

    @property
    def answer(self):
        return self.root.locator(".dlv-cheapest").inner_text()

    def press(self, name):
        self.root.get_by_role("button", name=name, exact=True).click()

    def height(self):
        return self.root.bounding_box()["height"]


@pytest.mark.sweep  # test_every_explorer moves every control
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine
def test_every_control_answers_and_what_ran_is_replayed_without_a_kernel(browser, tmp_path):
    explorer = ConsistencyExplorer(**TWO)
    page, faults = open_page(browser, explorer, "consistency/index", ["one"])
    shown = Page(page)
    changes = {
        "slowed": lambda: shown.control("slow").select_option("chance"),
        "slow": lambda: shown.slide("takes", 4),
        "workers": lambda: shown.slide("workers", 8),
        "sync_server": lambda: shown.control("method").select_option("sync_server"),
        "backups": lambda: shown.slide("backup workers", 2),
        "stale_synchronous": lambda: shown.control("method").select_option("stale_synchronous"),
        "bound": lambda: shown.slide("bound s", 3),
        "easgd": lambda: shown.control("method").select_option("easgd"),
        "form": lambda: shown.control("form").select_option("synchronous"),
        "alpha": lambda: shown.slide("α = ηρ", 5),
        "local_sgd": lambda: shown.control("method").select_option("local_sgd"),
        "every": lambda: shown.slide("steps between averages H", 1),
        "gossip": lambda: shown.control("method").select_option("gossip"),
        "topology": lambda: shown.control("topology").select_option("matching"),
    }
    for name, change in changes.items():
        before = state(explorer)["controls"]
        change()
        page.wait_for_function(SETTLED)
        reported = state(explorer)
        assert reported["controls"] != before, name
        assert f"{reported['predicted']['rate']:.3g} gradients/s" in shown.answer, name
        assert shown.height() <= 640, name
        knobs = shown.root.locator(".dlv-knob:visible")
        assert knobs.count() == len(KNOBS[reported["controls"]["method"]])
    shown.slide("workers", 3)  # which leave one over
    page.wait_for_function("() => document.querySelector('.dlv-trouble').textContent")
    assert "leave one over" in shown.root.locator(".dlv-trouble").inner_text()
    page.evaluate("""() => { // three controls in one tick
        for (const [name, value] of [["workers", 4], ["takes", 0]]) {
            const input = document.querySelector(`[aria-label="${name}"]`);
            input.value = value;
            input.dispatchEvent(new Event("input"));
        }
        const method = document.querySelector('[aria-label="method"]');
        method.value = "sync_server";
        method.dispatchEvent(new Event("change"));
    }""")
    page.wait_for_function(SETTLED)
    assert [explorer.workers, explorer.slow, explorer.method] == [4, 1, "sync_server"]
    assert state(explorer)["error"] == ""
    shown.press("run it on real ranks")
    page.wait_for_function(
        "() => document.querySelector('.dlv-cheapest').textContent.includes('measured')"
    )
    assert shown.height() <= 640
    assert "Loss" in shown.root.locator(".dlv-result").inner_text()
    page.close()

    explorer.workers = 9  # with what is wrong it is as high as it gets
    with saved_pages(
        browser, tmp_path, Page, lambda own: own.wait_for_selector(".dlv-node")
    ) as show:
        saved = show(explorer, width=833, height=680)
        assert saved.root.locator(".dlv-trouble").inner_text() and saved.height() <= 640
        explorer.workers = 3
        saved = show(explorer, width=833, height=680)
        root, control = saved.root, saved.control
        assert (
            control("workers").is_disabled() and not root.locator("[data-which]").first.is_visible()
        )
        control("recorded runs").select_option(index=1)
        assert "measured" in saved.answer and root.locator(".dlv-node").count() == 5
        assert saved.height() <= 640
        when = root.locator(".dlv-when")
        assert when.inner_text() == "0 ms" and root.locator(".dlv-dot").count() == 0
        root.locator("[data-which=predicted]").click()
        assert root.locator("[data-which=predicted]").get_attribute("aria-pressed") == "true"
        saved.press("next: message after")
        assert root.locator(".dlv-dot").count() == 4  # all together
        assert root.locator(".dlv-workers").inner_text().count("pushes") == 4
        first = when.inner_text()
        root.focus()
        saved.page.keyboard.press("ArrowRight")
        assert when.inner_text() != first
        saved.press("back: message before")
        assert when.inner_text() == first
        saved.press("play")
        saved.page.wait_for_function(
            "(first) => document.querySelector('.dlv-when').textContent !== first", arg=first
        )
        saved.press("pause")
        still = when.inner_text()
        saved.slide("moment", 1000)
        assert when.inner_text() != still and root.locator(".dlv-dot").count() == 0
        assert "done" in root.locator(".dlv-workers").inner_text()
        box = root.locator(".dlv-canvas").bounding_box()
        saved.page.mouse.click(box["x"] + 300, box["y"] + 60)
        assert when.inner_text() != still
        before = root.get_attribute("data-draws")
        for key in ("w", "d", "a", "s", "0"):
            saved.page.keyboard.press(key)
            saved.page.wait_for_function(
                "(n) => document.querySelector('.dlv').dataset.draws !== n", arg=before
            )
            before = root.get_attribute("data-draws")
    assert not faults

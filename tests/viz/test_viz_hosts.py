"""Pictures of a run on several hosts: whose row is where, and what is said of their times."""

from __future__ import annotations

import numpy as np
import pytest
from viz_scenes import TWO_HOSTS, annotations_of, data_parallel, on_hosts, ring

from dlviz import viz
from dlviz.machine import Link, Topology
from dlviz.trace import Trace
from dlviz.viz.gantt.arrows import arrows_of
from dlviz.viz.gantt.layout import laid_out
from dlviz.viz.gantt.pipeline import critical_of
from dlviz.viz.gantt.visible import shown
from dlviz.viz.scene import Scene
from dlviz.viz.words import text
from dlviz.viz.words.hosts import message_words, names_of, short

MIXED = {"host-a": [0, 2], "host-b": [1, 3]}
SAYS = "Clocks agree within"
WIDE = 58  # characters of a subtitle that fit beside long names in a figure of 600 pixels


def skewed(error, ahead=-3e-4):
    """Messages of 0.25 ms between hosts of which one's clock is off."""
    return on_hosts(data_parallel(4, 1), MIXED, {"host-a": 0.0, "host-b": error}, {"host-b": ahead})


def plan_of(trace):
    every = np.arange(len(trace.spans)), np.arange(len(trace.messages))
    return laid_out(trace, "wall", *every)


@pytest.mark.parametrize("hosts", [TWO_HOSTS, MIXED, {"b": [1, 3], "a": [0], "c": [2]}])
def test_rows_of_a_host_stand_together_under_a_line_with_its_name(hosts):
    plan = plan_of(on_hosts(data_parallel(4, 1), hosts))
    groups = sorted(hosts.items(), key=lambda own: min(own[1]))
    ranks = [rank for _, own in groups for rank in own]
    assert [*dict.fromkeys(rank for rank, _ in plan.rows)] == ranks
    for room in (100.0, 300.0, 2000.0):
        headed = plan.headed(room, 16.0)
        scale = headed.scale(room)
        assert [line.group.name for line in headed.lines] == [name for name, _ in groups]
        above = 0.0
        for line, (_, own) in zip(headed.lines, groups, strict=True):
            rows = [edges for (rank, _), edges in headed.rows.items() if rank in own]
            assert line.bottom == min(top for top, _ in rows) and line.top >= above
            assert (line.bottom - line.top) * scale == pytest.approx(16.0)
            above = max(bottom for _, bottom in rows)
        assert above == headed.height
        assert scale == pytest.approx(5 / 24) or (headed.above + above) * scale <= room + 1e-6


def test_spans_move_with_their_rows_and_what_is_shown_once_stays():
    trace = on_hosts(data_parallel(4, 2), MIXED)
    plan, headed = plan_of(trace), plan_of(trace).headed(400.0, 16.0)
    rows, moved = ([*own.rows.values()] for own in (plan, headed))
    once = np.unique(np.concatenate([level.ravel() for level in plan.shared]))
    assert (headed.top[once] == plan.top[once]).all() and (plan.top[once] < 0).all()
    for span in np.setdiff1d(np.arange(len(trace.spans)), once).tolist():
        by = moved[plan.row[span]][0] - rows[plan.row[span]][0]
        assert headed.top[span] - plan.top[span] == pytest.approx(by)
        assert headed.bottom[span] - plan.bottom[span] == pytest.approx(by)


def test_a_trace_without_hosts_is_laid_out_as_ever():
    plan = plan_of(data_parallel(4, 1))
    assert plan.headed(400.0, 16.0) is plan and plan.groups == []
    ticks = viz.timeline(data_parallel(4, 1)).layout.yaxis.ticktext
    assert not any("host" in tick or "<b>" in tick for tick in ticks)
    assert Scene(ring()).place == {0: 0, 1: 1, 2: 2, 3: 3} and Scene(ring()).high == 4


def test_racks_are_named_over_their_rows():
    link = Link(1e-6, 1e9)
    made = data_parallel(4, 1)
    meta = {**made.meta, "topology": Topology.racks(2, 2, link, link).outline}
    ticks = viz.timeline(Trace(made.spans, made.messages, meta=meta)).layout.yaxis
    named = dict(zip(ticks.ticktext, ticks.tickvals, strict=True))
    assert named["<b>rack 0</b>"] < named["rank 0"] < named["rank 1 · comm"]
    assert named["rank 1 · comm"] < named["<b>rack 1</b>"] < named["rank 2"]


@pytest.mark.parametrize("view", [viz.timeline, viz.messages])
def test_the_plotly_pictures_name_hosts_beside_their_ranks(view):
    ticks = view(on_hosts(ring(), {"<b>host-a": [0, 2], "host-b": [1, 3]})).layout.yaxis
    order = [name for _, name in sorted(zip(ticks.tickvals, ticks.ticktext, strict=True))]
    assert order == ["<b>&lt;b&gt;host-a</b>", "rank 0", "rank 2", "<b>host-b</b>", "rank 1",
                     "rank 3"]  # fmt: skip


@pytest.mark.parametrize("view", ["timeline", "messages"])
def test_the_pictures_for_paper_name_hosts_beside_their_ranks(view):
    axes = getattr(viz.print, view)(on_hosts(ring(), MIXED)).axes[0]
    places = zip(axes.get_yticks().tolist(), axes.get_yticklabels(), strict=True)
    order = [label.get_text() for _, label in sorted(places, key=lambda own: own[0])]
    assert order == ["host-a", "rank 0", "rank 2", "host-b", "rank 1", "rank 3"]


def test_traffic_has_the_ranks_of_a_host_beside_each_other_and_names_them():
    trace = on_hosts(data_parallel(4, 1), MIXED)
    figure = viz.traffic(trace)
    assert [name.split()[0] for name in figure.layout.yaxis.ticktext] == ["0", "2", "1", "3"]
    (heat,) = [series for series in figure.data if series.type == "heatmap"]
    sent = np.zeros((4, 4))
    np.add.at(sent, (trace.messages.src, trace.messages.dst), trace.messages.nbytes)
    np.testing.assert_array_equal(np.nan_to_num(heat.z), sent[np.ix_([0, 2, 1, 3], [0, 2, 1, 3])])
    assert "rank 2 on host-a → rank 3 on host-b" in heat.customdata[1][3]
    said = figure.layout.title.subtitle.text.replace("<br>", " ")
    assert f"{text.nbytes(int(sent.sum()))} between hosts (lines: host-a, host-b)" in said


# -- times between hosts ---------------------------------------------------------------------------
def test_no_arrow_points_back_in_time():
    trace = skewed(4e-4)
    early = trace.messages.received < trace.messages.sent
    assert early.any()
    seen = shown(trace, "wall", None, 1000)
    found = arrows_of(trace, seen.plan, seen.arrows)
    assert len(found) == len(trace.messages)
    length = found.heads[:, 0] - found.tails[:, 0]
    np.testing.assert_allclose(
        length, np.where(early, 0.0, trace.messages.received - trace.messages.sent), atol=1e-12
    )


def test_a_message_that_is_early_by_more_than_the_bound_has_no_arrow_and_the_picture_says_so():
    trace = skewed(0.4e-4)
    early = np.flatnonzero(trace.messages.received < trace.messages.sent - 0.4e-4)
    seen = shown(trace, "wall", None, 1000)
    assert len(early) and not np.intersect1d(seen.arrows, early).size
    assert f"{len(early)} messages have no arrow" in seen.hosts[0]
    assert len(seen.hosts[0]) <= WIDE
    subtitle = viz.timeline(trace, messages=True).layout.title.subtitle.text
    assert seen.hosts[0] in subtitle


@pytest.mark.parametrize(("error", "close"), [(0.54e-3, 24), (0.56e-3, 42), (0.049e-3, 0)])
def test_the_bound_is_stated_exactly_where_messages_took_less(error, close):
    """From host to host most take 0.25 ms: as the clocks go 0.55 ms, or come 0.05 ms early."""
    trace = skewed(error)
    took = trace.messages.received - trace.messages.sent
    assert close == (np.abs(took) < error).sum()
    seen = shown(trace, "wall", None, 1000)
    stated = [line for line in seen.hosts if line.startswith(SAYS)]
    line = f"{SAYS} {text.seconds(error)}: {close} of 48 messages took less."
    assert stated == [line] * bool(close) and len(line) <= WIDE
    for figure in (viz.timeline(trace), viz.messages(trace)):
        assert (SAYS in figure.layout.title.subtitle.text) == bool(close)


def test_a_picture_of_exact_times_says_nothing_of_clocks():
    for trace in (data_parallel(4, 1), on_hosts(data_parallel(4, 1))):  # known to 91 µs
        assert shown(trace, "wall", None, 1000).hosts == []
        assert SAYS not in viz.messages(trace).layout.title.subtitle.text


def test_of_several_bounds_the_largest_is_stated():
    hosts = {"a": [0], "b": [1], "c": [2, 3]}
    errors = {"a": 0.0, "b": 3e-4, "c": 4e-4}
    (line,) = shown(on_hosts(data_parallel(4, 1), hosts, errors), "wall", None, 1000).hosts
    assert line == f"{SAYS} 700 µs: 30 of 36 messages took less."


def test_a_message_says_how_well_its_two_times_compare():
    trace = skewed(4e-4)
    table, words = trace.messages, message_words(trace, "wall")
    for row, said in enumerate(words):
        took = float(table.received[row] - table.sent[row])
        more = ", longer than this took" if abs(took) < 4e-4 else ""
        assert said == f"times between hosts are known to 400 µs{more}"
    assert {*message_words(on_hosts(data_parallel(4, 1), {"a": [0], "b": [1, 2, 3]}), "wall")} == {
        "", "times between hosts are known to 91 µs",
    }  # fmt: skip
    assert not any(message_words(data_parallel(4, 1), "wall"))


def test_a_wait_and_idle_time_say_so_where_they_are_shorter_than_the_bound():
    """A rank waits 0.2 ms for one of its own host, then 0.2 ms for one of another."""
    ms = 1e-3
    spans = [
        {"rank": 0, "kind": "wait", "start": 0.0, "end": 0.2 * ms, "peer": 1},
        {"rank": 0, "kind": "wait", "start": 0.2 * ms, "end": 0.4 * ms, "peer": 2},
        *({"rank": rank, "kind": "forward", "start": 0.0, "end": 1 * ms} for rank in (1, 2)),
    ]
    hosts = {"a": [0, 1], "b": [2]}
    said = {}
    for error in (0.19, 0.21):
        meta = {"ranks": 3, "hosts": hosts, "clock_error": {"a": 0.0, "b": error * ms}}
        said[error] = viz.waited_for(Trace(spans, meta=meta))
    assert said[0.19] == {row: words.split("; times")[0] for row, words in said[0.21].items()}
    assert said[0.21][0] == said[0.19][0]
    ending = "; times between hosts are known to 210 µs, longer than this took"
    assert said[0.21][1] == said[0.19][1] + ending


def test_the_critical_path_counts_its_steps_between_hosts_that_are_shorter_than_the_bound():
    lines = critical_of(on_hosts(data_parallel(4, 1), MIXED, {"host-b": 3e-4}), None, "wall").lines
    stated = [line for line in lines if line.startswith(SAYS)]
    assert len(stated) == 1 and "path steps took less" in stated[0]
    assert len(stated[0]) <= WIDE
    for trace in (data_parallel(4, 1), on_hosts(data_parallel(4, 1), MIXED, {"host-b": 1e-9})):
        assert not any(SAYS in line for line in critical_of(trace, None, "wall").lines)


@pytest.mark.parametrize("view", ["timelines", "memory"])
@pytest.mark.parametrize(("error", "says"), [(9e-5, False), (1.1e-4, True)])
def test_marks_of_two_hosts_that_lie_closer_than_the_bound_are_counted(view, error, says):
    """What two ranks did and held, 0.1 ms after each other."""
    spans = {
        "rank": [0, 1, 0], "kind": ["forward", "forward", "backward"], "microbatch": [0, 0, 0],
        "start": [0.0, 1.1e-3, 3e-3], "end": [1e-3, 2e-3, 4e-3],
    }  # fmt: skip
    memory = {
        "rank": [0, 1, 0], "time": [1e-3, 1.1e-3, 4e-3], "nbytes": [8, 8, 0],
        "what": ["activations"] * 3,
    }  # fmt: skip
    meta = {"clock": "wall", "ranks": 2, "hosts": {"a": [0], "b": [1]}}
    trace = Trace(spans, memory=memory, meta=meta | {"clock_error": {"a": 0.0, "b": error}})
    traces = {"GPipe": trace}
    (found,) = {
        f"GPipe: c{SAYS[1:]}" in said
        for said in (
            getattr(viz, view)(traces).layout.title.subtitle.text,
            " ".join(each.get_text() for each in getattr(viz.print, view)(traces).texts),
        )
    }
    assert found == says
    if says:
        assert "1 of 2 marks" in getattr(viz, view)(traces).layout.title.subtitle.text
    if view == "memory":  # of a single Trace, which has no name
        lines = viz.memory(trace).layout.title.subtitle.text.split("<br>")
        assert any(line.startswith(SAYS) for line in lines) == says


# -- names -----------------------------------------------------------------------------------------
def test_hosts_are_named_in_the_subtitle_and_behind_the_i():
    trace = on_hosts(data_parallel(4, 1), {"host-a": [0, 1, 2], "x" * 45: [3]})
    assert text.provenance(trace, "wall") == ["wall clock · 2 hosts"]
    *_, line, order = text.details(trace, "wall")
    bound = "times between hosts are known to 91 µs"
    assert line == f"Hosts: host-a (ranks 0–2), {'x' * 45} (rank 3); {bound}."
    assert order == "Of two moments on two hosts that are closer, either may be the first."
    figure = viz.traffic({"one": trace, "other": trace})
    assert "wall clock · 2 hosts" in figure.layout.title.subtitle.text
    both = viz.traffic({"one": trace, "other": on_hosts(data_parallel(4, 1), {"a": [0, 1, 2, 3]})})
    assert "wall clock · 2 hosts and this machine" in both.layout.title.subtitle.text
    assert not [each for each in annotations_of(figure) if bound in (each.text or "")]


def test_a_long_name_keeps_its_beginning_and_its_end():
    name = "gpu-node-of-the-cluster-in-the-cellar-07"
    assert len(name) == 40 and short(name) == "gpu-node-of-the-…e-cellar-07"
    (own,) = names_of(plan_of(on_hosts(ring(2), {name: [0], "b": [1]})).groups[:1])
    assert own == {"label": short(name), "where": f"on {short(name)}", "summary": [name, "rank 0"]}

"""The words in figures: a short subtitle, and the rest of what a Trace says of its times."""

from __future__ import annotations

import pytest
from viz_scenes import data_parallel, ring

from dlviz import viz
from dlviz.trace import Trace
from dlviz.viz.words import text

PACED = {
    "clock": "paced",
    "machine": "classroom, 8 ranks on a switch, 5 ms a forward",
    "lateness": {"worst": 2e-3, "median": 1e-5},
    "warning": "other programs slowed this run",
}


@pytest.mark.parametrize(
    ("meta", "clock", "line"),
    [
        ({"clock": "wall"}, "wall", "wall clock"),
        ({"clock": "wall", "machine": "8 <A>"}, "wall", "wall clock · 8 <A>"),
        ({"clock": "simulated", "machine": "F 1 s"}, "device", "simulated · F 1 s"),
        (PACED, "device", "paced · classroom, 8 ranks on a switch, 5 ms a forward · device time"),
        (PACED, "wall", "paced · classroom, 8 ranks on a switch, 5 ms a forward · wall-clock time"),
        ({"clock": "paced", "machine": "a " * 99}, "device", f"paced · {'a ' * 24}… · device time"),
    ],
)
def test_a_subtitle_is_one_short_line_of_clock_and_machine(meta, clock, line):
    assert text.provenance(Trace(meta=meta), clock) == [line]


@pytest.mark.parametrize(
    ("meta", "line"),
    [
        ({"outcome": "failed"}, "The run failed; the figure shows what was recorded until then."),
        ({"outcome": "failed", "failure": {"message": "No rank can go on."}}, "No rank can go on."),
        ({"outcome": "unreceived"}, "Some messages were never received."),
    ],
)
def test_a_run_that_failed_has_a_line_more(meta, line):
    assert text.provenance(Trace(meta={**PACED, **meta}), "device")[1:] == [line]


def test_the_details_say_what_the_times_mean_the_machine_and_how_late_the_run_was():
    assert text.details(Trace(meta={**PACED, "machine": "a " * 99}), "wall") == [
        "Paced: processes, math and messages are real; each operation is held to the time that a "
        "modelled machine needs.",
        "Wall-clock time: the time at which this computer got to each operation.",
        f"Machine: {('a ' * 99).strip()}.",
        "This computer was 10 µs late in the median and 2 ms at worst.",
        "Warning: other programs slowed this run",
    ]
    assert text.details(Trace(meta={"clock": "simulated", "machine": "F 1 s"}), "device") == [
        "Simulated: nothing ran; the times come from a cost model.",
        "Cost model: F 1 s.",
    ]


@pytest.mark.parametrize(
    "view", [viz.timeline, viz.breakdown, viz.memory, viz.traffic, viz.messages]
)
def test_every_figure_of_a_trace_has_its_details_behind_an_i(view):
    trace = ring(3, 6)
    trace.meta.update(PACED, machine="8 <A>")
    figure = view(trace)
    above = figure.layout.title.subtitle.text
    assert above.startswith("paced · 8 &lt;A&gt; · device time") and "slowed" not in above
    annotation = next(each for each in figure.layout.annotations if each.name == text.DETAILS)
    assert annotation.text == "<b>(i)</b>"
    for line in text.details(trace, "device"):
        assert text.wrap(line) in annotation.hovertext
    for frame in figure.frames:
        assert annotation in frame.layout.annotations


def test_several_traces_of_one_clock_are_described_as_one_with_the_worst_lateness():
    one, other = Trace(meta=PACED), data_parallel(2)
    other.meta.update({**PACED, "machine": "another", "lateness": {"worst": 4e-3, "median": 3e-5}})
    failed = Trace(meta={"clock": "wall", "machine": "mine", "outcome": "failed"})
    (paced, clock), (wall, _) = text.merged([(one, "wall"), (failed, "wall"), (other, "wall")])
    assert text.provenance(paced, clock) == ["paced · 2 machines · wall-clock time"]
    assert "This computer was 20 µs late in the median and 4 ms at worst." in text.details(
        paced, clock
    )
    assert text.provenance(wall, "wall")[0] == "wall clock · mine"
    assert text.provenance(wall, "wall")[1].startswith("The run failed")

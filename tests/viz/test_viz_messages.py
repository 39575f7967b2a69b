"""The ring's picture: contents decoded, each message of the Trace drawn once and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest
from viz_scenes import data_parallel, ring

import dlviz
from dlviz import viz
from dlviz.trace import Trace
from dlviz.viz.scene import Scene, ops
from dlviz.widgets import Timeline

HALF = 0.31  # of a row: a rank's cells reach this far from its middle


def series(frame_or_figure, figure, name):
    """One moving series of a frame, found by the name it has in the figure."""
    moving = figure.frames[0].traces
    at = [figure.data[i].name for i in moving].index(name)
    return frame_or_figure.data[at]


def shown(figure, frame, ranks, length):
    """What a frame's bars say each cell holds: (rank, cell, contribution), from their geometry."""
    held = np.zeros((ranks, length, ranks), bool)
    for source in range(ranks):
        bars = series(frame, figure, f"from rank {source}")
        for low, width, y, height in zip(bars.base, bars.x, bars.y, bars.width, strict=True):
            assert height == pytest.approx(2 * HALF / ranks)
            rank = round(y)
            assert y == pytest.approx(rank - HALF + (source + 0.5) * height)
            assert not held[rank, low : low + width, source].any()
            held[rank, low : low + width, source] = True
    return held


def arrows(figure, frame, name="message"):
    """Row of the Trace, and x and y of the ends, of each arrow in a frame."""
    line = series(frame, figure, name)
    return [
        (line.customdata[i][0], line.x[i], line.y[i], line.x[i + 2], line.y[i + 2])
        for i in range(0, len(line.x), 4)
    ]


def boxes(figure, frame, name):
    """(rank, first cell, cell after the last) of each outline in a frame."""
    line = series(frame, figure, name)
    return sorted(
        (round(np.mean(line.y[i : i + 4])), line.x[i], line.x[i + 1])
        for i in range(0, len(line.x), 6)
    )


def words_of(frame):
    """What stands above a frame's picture, on one line."""
    return frame.layout.annotations[-1].text.replace("<br>", " ")


@pytest.mark.parametrize(
    ("ranks", "length"),
    [(2, 4), (3, 7), (4, 16), (5, 3), (7, 70), pytest.param(13, 26, marks=pytest.mark.sweep)],
)
def test_cells_are_the_contents_of_the_buffers_decoded(ranks, length):
    trace = ring(ranks, length)
    figure = viz.messages(trace)
    frames = viz.message_frames(trace)
    assert len(figure.frames) == len(frames) == 2 * (ranks - 1) + 1
    for drawn, frame in zip(figure.frames, frames, strict=True):
        held = shown(figure, drawn, ranks, length)
        for rank, place in frame.snapshots.items():
            contents = trace.buffers[place]["array"]
            np.testing.assert_array_equal(held[rank], viz.decode(contents, ranks) == 1)
    own = shown(figure, figure.frames[0], ranks, length)
    np.testing.assert_array_equal(own, np.eye(ranks, dtype=bool)[:, None].repeat(length, 1))
    assert shown(figure, figure.frames[-1], ranks, length).all()


@pytest.mark.parametrize("steps", [True, False])
@pytest.mark.parametrize(("ranks", "length"), [(2, 4), (4, 16), (5, 3), (6, 40)])
def test_every_message_of_the_trace_is_drawn_once_and_no_other(ranks, length, steps):
    trace = ring(ranks, length, steps=steps)
    table = trace.messages
    figure, frames = viz.messages(trace), viz.message_frames(trace)
    drawn = [row for frame in figure.frames for row, *_ in arrows(figure, frame)]
    assert sorted(drawn) == list(range(len(table)))
    for picture, frame in zip(figure.frames, frames, strict=True):
        assert [row for row, *_ in arrows(figure, picture)] == list(frame.messages)
        for row, x0, y0, x1, y1 in arrows(figure, picture):
            src, dst = table.src[row], table.dst[row]
            lean = np.sign(dst - src) * HALF
            assert (y0, y1) == (pytest.approx(src + lean), pytest.approx(dst - lean))
            assert x0 == x1 and 0 < x0 - table.offset[row] < table.count[row]
        cells = [(table.offset[r], table.offset[r] + table.count[r]) for r in frame.messages]
        sent = sorted((table.src[r], *c) for r, c in zip(frame.messages, cells, strict=True))
        landed = sorted((table.dst[r], *c) for r, c in zip(frame.messages, cells, strict=True))
        assert boxes(figure, picture, "cells sent") == sent
        assert boxes(figure, picture, "cells received") == landed


def test_the_first_picture_is_the_start_and_holds_no_message():
    figure = viz.messages(ring())
    assert figure.frames[0].name == "0" and not arrows(figure, figure.frames[0])
    moving = [figure.data[i] for i in figure.frames[0].traces]
    for part, still in zip(figure.frames[0].data, moving, strict=True):
        np.testing.assert_array_equal(part.x, still.x)
    assert figure.layout.annotations[-1].text == "<b>start</b>"


def test_the_words_above_a_round_sum_up_its_messages():
    figure = viz.messages(ring(4, 16))
    assert words_of(figure.frames[3]) == "<b>round 3 of 6</b>: 4 messages, added"
    assert words_of(figure.frames[4]) == "<b>round 4 of 6</b>: 4 messages, copied"
    alone = viz.messages(Trace(messages=[{"src": 0, "dst": 1, "sent": 0.0, "received": 1.0}]))
    assert "rank 0 → rank 1, delivered" in words_of(alone.frames[1])


def test_a_contribution_added_twice_shows_as_two():
    def again(hop, rank, buffer):
        if (hop, rank) == (0, 1):  # its own chunk 0 once more
            buffer[:4] += viz.encode(1, 4, 16)[:4]

    figure = viz.messages(ring(4, 16, sabotage=again))
    bars = series(figure.frames[1], figure, "from rank 1")
    assert list(bars.text).count("×2") == 1
    (at,) = [i for i, word in enumerate(bars.text) if word]
    assert (bars.base[at], bars.x[at], round(bars.y[at])) == (0, 4, 1)
    assert "rank 1 holds rank 0, rank 1 ×2 in cells" in words_of(figure.frames[1])
    hovers = series(figure.frames[1], figure, None).customdata
    assert any("holds rank 0, rank 1 ×2" in words for words in hovers)
    last = series(figure.frames[-1], figure, "from rank 1")
    assert list(last.text).count("×2") == 4  # it went round to all ranks


def test_contents_that_are_no_sum_are_drawn_as_not_known():
    def spoil(hop, rank, buffer):
        if (hop, rank) == (2, 3):
            buffer[9] = 3.14

    trace = ring(4, 16, sabotage=spoil)
    figure = viz.messages(trace)
    unknown = [series(frame, figure, "not a sum of contributions") for frame in figure.frames]
    assert [len(bars.x) for bars in unknown] == [0, 0, 0, 1, 1, 0, 0]  # mended by the all-gather
    bars = unknown[3]
    assert (bars.base[0], bars.x[0], bars.y[0], bars.text[0]) == (9, 1, 3, "?")
    assert not shown(figure, figure.frames[3], 4, 16)[3, 9].any()
    words = words_of(figure.frames[3])
    assert "rank 3 holds no sum of contributions in cell 9" in words
    assert words.endswith(" (and 1 more)")
    assert Scene(trace).oddities(3)[1:] == [
        "rank 3 changed cell 9, which no message of this round reached"
    ]
    assert words_of(figure.frames[2]) == "<b>round 2 of 6</b>: 4 messages, added"


def test_numbers_of_another_chunk_are_named_and_never_taken_for_a_multiple():
    def astray(hop, rank, buffer):
        if (hop, rank) == (0, 2):
            buffer[0:4] += viz.encode(3, 4, 16)[12:16]

    figure = viz.messages(ring(4, 16, sabotage=astray))
    unknown = series(figure.frames[1], figure, "not a sum of contributions")
    assert [(unknown.base[0], unknown.x[0], unknown.y[0])] == [(0, 4, 2)]
    words = words_of(figure.frames[1])
    assert "rank 2 holds numbers of cells 12–15 in cells 0–3" in words and "×" not in words
    end = words_of(figure.frames[-1])
    assert "in the end 48 of 64 cells hold every rank's numbers once" in end


@pytest.mark.parametrize(
    ("left", "now"), [((2,), "holds rank 2"), ((0, 1, 2, 3, 3), "holds numbers of cells 12–15")]
)
def test_a_complete_sum_that_is_overwritten_is_said_to_be_lost_before_all_else(left, now):
    def overwrite(hop, rank, buffer):
        if (hop, rank) == (4, 1):
            chunk = sum(np.array(viz.encode(r, 4, 16)) for r in left)
            buffer[4:8] = chunk[4:8] if len(left) == 1 else chunk[12:16]

    trace = ring(4, 16, sabotage=overwrite)
    scene = Scene(trace)
    assert scene.losses(5) == [f"rank 1 lost the complete sum in cells 4–7: it now {now}"]
    assert [bool(scene.losses(i)) for i in range(7)] == [False] * 5 + [True, True]
    assert scene.losses(6)[-1] == "in the end 60 of 64 cells hold every rank's numbers once"
    words = words_of(viz.messages(trace).frames[5])
    assert words.startswith("<b>round 5 of 6</b>: 4 messages, copied rank 1 lost the complete sum")


def test_numbers_that_a_copy_replaces_are_lost_only_where_the_program_sums():
    def copy(hop, rank, buffer):
        if (hop, rank) == (0, 2):  # it copies what it should have added
            buffer[4:8] = viz.encode(1, 4, 16)[4:8]

    assert Scene(ring(4, 16, sabotage=copy)).losses(1) == [
        "rank 2 lost the numbers of rank 2 in cells 4–7: it now holds rank 1"
    ]
    broadcast = recorded(
        [{"src": 0, "dst": 1, "sent": 1.0, "received": 2.0}],
        [(0.0, viz.encode(0, 2, 1)[0])],
        [(0.0, viz.encode(1, 2, 1)[0]), (2.0, viz.encode(0, 2, 1)[0])],
    )
    broadcast.meta["ranks"] = 2
    assert Scene(broadcast).frames[1].snapshots == {0: 0, 1: 2}
    assert not any(map(Scene(broadcast).losses, (0, 1)))  # a broadcast loses nothing
    right = Scene(ring(4, 16))
    assert not any(right.losses(i) for i in range(7))


def test_a_buffer_that_is_filled_again_has_lost_nothing():
    def again(hop, rank, buffer):
        if hop == 5:
            buffer[:] = viz.encode(rank, 4, 16)

    scene = Scene(ring(4, 16, sabotage=again))
    assert not any(scene.losses(i) for i in range(6))


def test_the_timeline_and_the_pictures_say_the_same_of_a_message():
    """A plain receive into a tensor of its own, which the program then adds."""
    trace = recorded(
        [{"src": 0, "dst": 1, "sent": 1.0, "received": 2.0}],
        [(0.9, 1.0)],
        [(0.0, 3.0), (2.1, 3.0), (2.9, 4.0)],
    )
    assert trace.messages.op.tolist() == ["copy"] and ops(trace) == ["sum"]
    assert ops(Trace(messages=trace.messages)) == ["copy"]
    hover = [d for part in viz.timeline(trace).data for d in part.customdata or () if d]
    assert any("cell 0, added" in str(words) for words in hover)
    assert "added" in words_of(viz.messages(trace).frames[1])
    state = json.loads(Timeline(trace).state)
    assert state["messages"]["op"]["of"] == ["added"]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_no_picture_is_higher_than_a_laptop_shows(ranks):
    trace = ring(ranks, 16)
    assert viz.messages(trace).layout.height <= 640
    printed = viz.print.messages(trace).get_size_inches()
    assert printed[1] / printed[0] <= 0.8


def test_a_chunk_added_to_the_wrong_place_shows_where_it_is():
    def astray(hop, rank, buffer):
        if hop == 0 and rank == 2:
            buffer[0:4] += viz.encode(1, 4, 16)[0:4]

    trace = ring(4, 16, sabotage=astray)
    held = shown(viz.messages(trace), viz.messages(trace).frames[1], 4, 16)
    assert held[2, 0:4, 1].all() and not held[2, 8:12, 1].any()


def test_a_buffer_that_was_not_encoded_is_said_to_be_unreliable():
    trace = ring(4, 16)
    for snapshot in trace.buffers:
        if snapshot["rank"] == 2:
            snapshot["array"] = snapshot["array"] + 0.5
    subtitle = viz.messages(trace).layout.title.subtitle.text.replace("<br>", " ")
    assert "The buffer of rank 2 did not start with the values of viz.encode" in subtitle
    assert "did not start" not in viz.messages(ring(4, 16)).layout.title.subtitle.text


def test_more_ranks_than_can_be_decoded_are_drawn_as_not_known():
    trace = ring(13, 13)
    trace.meta["ranks"] = 14
    figure = viz.messages(trace)
    assert "separated for at most 13 ranks" in figure.layout.title.subtitle.text
    bars = series(figure.frames[0], figure, "not a sum of contributions")
    assert len(bars.x) == 13 * 13 and "from rank 0" not in [part.name for part in figure.data]


def test_a_trace_without_buffers_or_offsets_shows_its_messages():
    messages = [
        {"src": 0, "dst": 1, "sent": 0.0, "received": 1.0, "nbytes": 8},
        {"src": 0, "dst": 2, "sent": 0.0, "received": 1.0, "nbytes": 8},
        {"src": 2, "dst": 0, "sent": 2.0, "received": 3.0, "nbytes": 8},
    ]
    figure = viz.messages(Trace(messages=messages))
    assert "No buffer was watched" in figure.layout.title.subtitle.text
    found = [arrows(figure, frame) for frame in figure.frames]
    assert [len(frame) for frame in found] == [0, 2, 1]
    across = sorted(arrow[1] for arrow in found[1])
    assert across == pytest.approx([1 / 3, 2 / 3])  # side by side, where cells would be
    assert figure.layout.xaxis.title.text == "cells"
    assert "2 messages, delivered" in words_of(figure.frames[1])
    assert "rank 2 → rank 0, delivered" in words_of(figure.frames[2])


def test_a_message_never_received_ends_in_a_cross_and_lands_nowhere():
    trace = ring(3, 6)
    trace.messages.received[-1] = trace.messages.wall_received[-1] = np.nan
    figure, last = viz.messages(trace), len(trace.messages) - 1
    crosses = [arrows(figure, frame, "never received") for frame in figure.frames]
    assert [row for frame in crosses for row, *_ in frame] == [last]
    assert last not in [row for frame in figure.frames for row, *_ in arrows(figure, frame)]
    crossed = series(figure.frames[-1], figure, "never received").customdata
    assert "never received" in crossed[0][1]
    assert len(boxes(figure, figure.frames[-1], "cells received")) == 2


def test_messages_without_steps_are_grouped_into_rounds_by_what_had_been_received():
    frames = viz.message_frames(ring(4, 16, steps=False))
    assert [frame.name for frame in frames] == ["start"] + [f"round {i} of 6" for i in range(1, 7)]
    assert [len(frame.messages) for frame in frames] == [0] + [4] * 6


def test_messages_that_take_no_time_follow_each_other_too():
    hops = [{"src": r, "dst": r + 1, "sent": 0.0, "received": 0.0} for r in range(3)]
    frames = viz.message_frames(Trace(messages=hops))
    assert [frame.messages for frame in frames] == [(), (0,), (1,), (2,)]


def recorded(message, *buffers):
    """A Trace of messages of one cell and of what each rank held when: (time, value)."""
    shots = [
        {"rank": rank, "index": i, "time": t, "wall": t, "array": np.array([value])}
        for rank, held in enumerate(buffers)
        for i, (t, value) in enumerate(held)
    ]
    common = {"offset": 0, "count": 1, "op": "copy"}
    return Trace(messages=[common | each for each in message], buffers=shots)


def test_a_rank_is_shown_as_it_was_when_it_went_on_to_its_next_message():
    sends = [
        {"src": 0, "dst": 1, "sent": 1.5, "received": 2.0},
        {"src": 1, "dst": 0, "sent": 3.0, "received": 3.5},
        {"src": 0, "dst": 1, "sent": 5.5, "received": 6.0},
    ]
    sender = [(0.0, 1.0), (1.4, 2.0), (2.5, 3.0), (3.6, 4.0), (5.4, 5.0), (9.0, 6.0)]
    start, *frames = viz.message_frames(recorded(sends, sender))
    assert start.snapshots == {0: 0}
    assert [frame.snapshots[0] for frame in frames] == [2, 4, 5]


def test_a_sum_made_after_the_receive_belongs_to_the_step_of_its_message():
    sends = [
        {"src": 0, "dst": 1, "sent": 1.0, "received": 2.0},
        {"src": 1, "dst": 0, "sent": 3.0, "received": 4.0},
    ]
    mine, theirs = [(0.9, 1.0), (9.0, 1.0)], [(0.0, 3.0), (2.1, 3.0), (2.9, 4.0), (9.0, 4.0)]
    trace = recorded(sends, mine, theirs)
    assert [frame.snapshots[1] - 2 for frame in viz.message_frames(trace)] == [0, 2, 3]
    words = words_of(viz.messages(trace).frames[1])
    assert "rank 0 → rank 1, cell 0, added" in words and "changed" not in words


def test_a_message_put_aside_may_be_used_in_any_form_and_as_late_as_the_next_one():
    sends = [
        {"src": 0, "dst": 1, "sent": 1.0, "received": 2.0},
        {"src": 1, "dst": 0, "sent": 3.0, "received": 4.0},
    ]
    mine = [(0.9, 1.0), (9.0, 1.0)]
    doubled = recorded(sends, mine, [(0.0, 3.0), (2.1, 3.0), (2.9, 6.0), (9.0, 8.0)])
    words = [words_of(frame) for frame in viz.messages(doubled).frames]
    assert "delivered" in words[1] and not any("changed" in each for each in words)
    into = recorded(sends, mine, [(0.0, 3.0), (2.1, 4.0), (2.9, 4.0), (9.0, 8.0)])
    words = [words_of(frame) for frame in viz.messages(into).frames]
    assert "rank 1 changed cell 0, which no message" in words[2]


def test_a_step_is_one_picture_where_some_ranks_get_ahead_of_others():
    """Rank 0 begins step 1 before step 0 of ranks 2 and 3 is over."""
    rows = [(0, 1, 0.0, 0), (1, 0, 2.0, 1), (2, 3, 3.0, 0), (3, 2, 5.0, 1)]
    messages = [
        {"src": s, "dst": d, "sent": t, "received": t + 1, "step": n} for s, d, t, n in rows
    ]
    frames = viz.message_frames(Trace(messages=messages))
    assert [(frame.name, frame.messages) for frame in frames[1:]] == [
        ("round 1 of 2", (0, 2)), ("round 2 of 2", (1, 3)),
    ]  # fmt: skip


def test_a_step_sent_after_a_later_one_was_received_is_shown_after_it():
    rows = [(0, 1, 0.0, 1), (1, 2, 2.0, 0)]
    messages = [
        {"src": s, "dst": d, "sent": t, "received": t + 1, "step": n} for s, d, t, n in rows
    ]
    frames = viz.message_frames(Trace(messages=messages))
    assert [frame.messages for frame in frames[1:]] == [(0,), (1,)]


def test_a_step_of_each_message_is_a_picture_of_its_own_in_the_order_received():
    rows = [(2, 1.0, 3.0, 1), (3, 1.1, 4.0, 2), (1, 1.2, 2.0, 0)]
    messages = [{"src": s, "dst": 0, "sent": a, "received": b, "step": n} for s, a, b, n in rows]
    messages.append({"src": 0, "dst": 1, "sent": 5.0, "received": 6.0, "step": 3})
    frames = viz.message_frames(Trace(messages=messages))
    assert [(frame.name, frame.messages) for frame in frames[1:]] == [
        ("round 1 of 4", (2,)), ("round 2 of 4", (0,)), ("round 3 of 4", (1,)),
        ("round 4 of 4", (3,)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "names"),
    [
        ([0, 1, 0, 1], [f"call {c} of 2, round {r} of 2" for c in (1, 2) for r in (1, 2)]),
        ([0, 1, 2, 0], [f"call 1 of 2, round {r} of 3" for r in (1, 2, 3)]
         + ["call 2 of 2, round 1 of 1"]),
        ([0, 0, 1, 1], [f"round {r} of 4" for r in (1, 2, 3, 4)]),
        ([-1, -1, -1, -1], [f"round {r} of 4" for r in (1, 2, 3, 4)]),
    ],
)  # fmt: skip
def test_rounds_count_from_1_in_each_call_and_keep_the_order_in_which_they_ran(steps, names):
    messages = [
        {"src": i % 2, "dst": 1 - i % 2, "sent": 2.0 * i, "received": 2.0 * i + 1, "step": step}
        for i, step in enumerate(steps)
    ]
    frames = viz.message_frames(Trace(messages=messages))
    assert [frame.messages for frame in frames] == [(), (0,), (1,), (2,), (3,)]
    assert [frame.name for frame in frames] == ["start", *names]


def test_steps_of_the_program_are_no_calls():
    hops = [{"src": i % 2, "dst": 1 - i % 2, "sent": 2.0 * i, "received": 2.0 * i + 1, "step": s}
            for i, s in enumerate([0, 0, 0, 1])]  # fmt: skip
    sends = [{"rank": i % 2, "lane": "compute", "kind": "send", "start": 2.0 * i, "end": 2.0 * i,
              "flow": i, "step": hop["step"]} for i, hop in enumerate(hops)]  # fmt: skip
    names = [frame.name for frame in viz.message_frames(Trace(sends, hops))]
    assert names == ["start", *(f"round {i} of 4" for i in range(1, 5))]


def test_one_step_of_a_trace_is_drawn_by_itself():
    trace = ring(4, 16)
    figure = viz.messages(trace, step=2)
    drawn = [row for frame in figure.frames for row, *_ in arrows(figure, frame)]
    assert sorted(drawn) == np.flatnonzero(trace.messages.step == 2).tolist()


def test_snapshots_are_ordered_by_the_wall_clock_where_device_times_tie():
    trace = ring(4, 16)
    for snapshot in trace.buffers:
        snapshot["time"] = 0.0
    trace.messages.sent[:] = trace.messages.arrived[:] = trace.messages.received[:] = 0.0
    again = viz.message_frames(trace)
    assert again == viz.message_frames(ring(4, 16))


def test_a_buffer_is_chosen_by_name():
    trace = ring(2, 4)
    other = [{**s, "name": "other", "array": np.zeros(3)} for s in trace.buffers]
    both = Trace(messages=trace.messages, buffers=trace.buffers + other, meta=trace.meta)
    assert viz.messages(both).frames[0].data[0].x[0] == 2  # a chunk of the first buffer
    figure = viz.messages(both, buffer="other")
    assert not shown(figure, figure.frames[0], 2, 3).any()
    assert "2 buffers were watched" in figure.layout.title.subtitle.text
    assert "buffers were watched" not in viz.messages(trace).layout.title.subtitle.text
    with pytest.raises(ValueError, match="buffer='third' was not watched .*'buffer', 'other'"):
        viz.messages(both, buffer="third")
    with pytest.raises(ValueError, match=r"\(watched: none\)"):
        viz.messages(Trace(), buffer="x")


def test_long_buffers_are_drawn_in_chunks():
    figure = viz.messages(ring(4, 100_000))
    assert shown(figure, figure.frames[-1], 4, 100_000).all()
    assert sum(len(part.x) for part in figure.frames[-1].data if part.type == "bar") <= 100


def test_an_empty_trace_and_an_empty_buffer_are_figures():
    empty = viz.messages(Trace())
    assert len(empty.frames) == 1 and not arrows(empty, empty.frames[0])
    buffers = [{"rank": 0, "array": np.zeros(0)}]
    hollow = viz.messages(Trace(buffers=buffers, meta={"ranks": 1}))
    assert len(hollow.frames) == 1


def test_the_slider_names_every_frame():
    figure = viz.messages(ring(4, 16))
    (slider,) = figure.layout.sliders
    assert [step.args[0][0] for step in slider.steps] == [frame.name for frame in figure.frames]
    assert [step.label for step in slider.steps] == ["start", *map(str, range(1, 7))]


def test_too_many_pictures_are_cut_and_it_says_so():
    figure = viz.messages(ring(4, 16), max_frames=3)
    assert len(figure.frames) == 3 == len(figure.layout.sliders[0].steps)
    assert "The first 3 of 7 pictures are shown." in figure.layout.title.subtitle.text


def test_the_axis_has_the_buffers_name_if_there_is_one():
    trace = ring(2, 4)
    assert viz.messages(trace).layout.xaxis.title.text == "cells of the watched buffer"
    for snapshot in trace.buffers:
        snapshot["name"] = "gradient"
    assert viz.messages(trace).layout.xaxis.title.text == "cells of the watched buffer gradient"


def test_a_step_of_the_program_holds_the_messages_of_its_collectives_whatever_their_round():
    trace = data_parallel(ranks=3, steps=2)
    own = trace.messages.step.copy()
    trace.messages.step[:] = np.arange(len(own)) % 4  # rounds, as inside a ring
    drawn = [row for frame in viz.message_frames(trace, step=1) for row in frame.messages]
    assert sorted(drawn) == np.flatnonzero(own == 1).tolist()


def test_hover_has_contents_and_messages_in_words():
    trace = ring(2, 4)
    figure = viz.messages(trace)
    hovers = series(figure.frames[1], figure, None).customdata
    assert "<b>rank 1, cells 0–1</b><br>holds rank 0, rank 1<br>contents 4, 8" in hovers
    line = series(figure.frames[1], figure, "message")
    assert line.customdata[0][1].startswith("<b>message 0: rank 0 → rank 1, cells 0–1, added</b>")
    assert "16 bytes" in line.customdata[0][1]


def with_a_temporary(comm, length):
    """A student's ring: each message into a tensor of its own, then added by hand."""
    import torch

    from dlviz.viz import encode

    tensor = torch.tensor(encode(comm.rank, comm.size, length), dtype=torch.float64)
    comm.watch(tensor, "chunks")
    chunks = tensor.chunk(comm.size)
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    for step in range(comm.size - 1):
        mine, theirs = chunks[(comm.rank - step) % 3], chunks[(comm.rank - step - 1) % 3]
        sending, temporary = comm.isend(mine, right), torch.empty_like(theirs)
        comm.recv(temporary, left)
        theirs += temporary
        sending.wait()


@pytest.mark.slow
def test_a_real_run_that_adds_by_hand_is_described_as_one_that_adds():
    trace = dlviz.launch(with_a_temporary, ranks=3, args=(6,)).trace
    figure, frames = viz.messages(trace), viz.message_frames(trace)
    first, last = ([trace.buffers[place]["array"] for place in f.snapshots.values()] for f in
                   frames[1:])  # fmt: skip
    own = [np.array(viz.encode(rank, 3, 6)) for rank in range(3)]
    for rank in range(3):
        chunk = slice(2 * ((rank - 1) % 3), 2 * ((rank - 1) % 3) + 2)
        np.testing.assert_array_equal(first[rank][chunk], (own[rank] + own[rank - 1])[chunk])
        whole = slice(2 * ((rank - 2) % 3), 2 * ((rank - 2) % 3) + 2)
        np.testing.assert_array_equal(last[rank][whole], sum(own)[whole])
    for picture in figure.frames[1:]:
        assert words_of(picture).endswith("</b>: 3 messages, added")


def all_reduce(comm, length):
    import torch

    from dlviz.collectives import ring as algorithm
    from dlviz.viz import encode

    tensor = torch.tensor(encode(comm.rank, comm.size, length), dtype=torch.float64)
    comm.watch(tensor, "gradient")
    algorithm.all_reduce(comm, tensor)


@pytest.mark.slow
def test_a_real_run_shows_every_message_it_sent_and_ends_with_every_contribution():
    trace = dlviz.launch(all_reduce, ranks=3, args=(7,)).trace
    figure = viz.messages(trace)
    drawn = [row for frame in figure.frames for row, *_ in arrows(figure, frame)]
    assert sorted(drawn) == list(range(len(trace.messages))) and len(drawn) == 12
    assert [frame.name for frame in viz.message_frames(trace)[1:]] == [
        f"round {i} of 4" for i in range(1, 5)
    ]
    own = shown(figure, figure.frames[0], 3, 7)
    np.testing.assert_array_equal(own, np.eye(3, dtype=bool)[:, None].repeat(7, 1))
    assert shown(figure, figure.frames[-1], 3, 7).all()

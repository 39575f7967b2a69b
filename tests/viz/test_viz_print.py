"""The print forms by their geometry, their words as written, and files that can be opened."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.quiver import Quiver
from viz_scenes import data_parallel, pieces, ring

import dlviz
from dlviz import viz
from dlviz.trace import Trace
from dlviz.viz import palette, paper
from dlviz.viz.gantt.layout import laid_out
from dlviz.viz.words.text import kind as kind_name

MS = 1e-3
FORMATS = ("svg", "pdf", "png")
EVIL = r"$\frac{a}{b}$ <b>a_b</b> \alpha & {x}"


def span(rank=0, kind="forward", start=0.0, end=1.0, **fields):
    return {"rank": rank, "lane": "compute", "kind": kind, "start": start, "end": end} | fields


def boxes(axes, name):
    """Left, right, top and bottom of each rectangle of a name: (rectangles, 4)."""
    (found,) = [part for part in axes.collections if part.get_label() == name]
    paths = [path.vertices for path in found.get_paths() if len(path.vertices)]
    corners = np.concatenate(paths).reshape(-1, 5, 2) if paths else np.zeros((0, 5, 2))
    low, high = corners[:, :4].min(axis=1), corners[:, :4].max(axis=1)  # the fifth closes it
    return np.stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]], axis=1)


def ordered(rows):
    return np.array(sorted(np.asarray(rows, float).tolist()))


def arrows(axes):
    """Both ends of each arrow: (arrows, 4), tail x and y, head x and y."""
    found = [part for part in axes.collections if isinstance(part, Quiver)]
    if not found:
        return np.zeros((0, 4))
    (part,) = found
    head = part.XY + np.stack([part.U, part.V], axis=1)
    return np.concatenate([part.XY, head], axis=1)


def words(figure):
    """Every text of a figure."""
    figure.draw_without_rendering()
    return [text for text in figure.findobj(matplotlib.text.Text) if text.get_text()]


def texts(figure):
    return [text.get_text() for text in words(figure)]


def legend(figure):
    return [text.get_text() for part in figure.legends for text in part.get_texts()]


@pytest.mark.parametrize("clock", ["device", "wall"])
def test_every_span_is_a_rectangle_of_its_kind_where_the_timeline_lays_it_out(clock):
    trace = data_parallel(ranks=3, steps=2)
    figure = viz.print.timeline(trace, clock=clock, messages=False)
    plan = laid_out(trace, clock, np.arange(len(trace.spans)), np.arange(0))
    expected = pieces(trace, clock)
    for kind in set(expected) - {"step"}:
        rows, begin, finish = expected[kind].T
        rows = rows.astype(int)
        sides = np.stack([begin / MS, finish / MS, plan.top[rows], plan.bottom[rows]], axis=1)
        drawn = boxes(figure.axes[0], kind)
        np.testing.assert_allclose(ordered(drawn), ordered(sides), rtol=1e-12)
    assert len(boxes(figure.axes[0], "step")) == 2  # once for all ranks
    lasting = {kind for kind, (_, begin, end) in ((k, of.T) for k, of in expected.items())
               if (end > begin).any()}  # fmt: skip
    assert legend(figure) == [kind for kind in palette.KINDS if kind in lasting]
    time = "wall-clock time" if clock == "wall" else "device time"
    assert figure.axes[0].get_xlabel() == f"{time} since the run's start (ms)"
    ranks = [name.get_text() for name in figure.axes[0].get_yticklabels()]
    names = [f"rank {rank}{lane}" for rank in range(3) for lane in ("", " · comm")]
    assert ranks == ["all ranks", *names]
    assert figure.axes[0].get_yticks().tolist() == [-plan.above / 2, *plan.y.values()]


def test_a_kind_looks_as_on_a_page_and_waits_are_hatched():
    kinds = [*palette.KINDS, "mine", "yours"]
    trace = Trace([span(kind=kind, start=i, end=i + 0.9) for i, kind in enumerate(kinds)])
    figure = viz.print.timeline(trace)
    drawn = {part.get_label(): part for part in figure.axes[0].collections}
    names = [*map(kind_name, palette.KINDS), "mine, yours"]
    assert list(drawn) == [*names[:-1], "mine", "yours"] and legend(figure) == names
    styles = [*palette.KINDS.values(), palette.OTHER, palette.OTHER]
    for part, style in zip(drawn.values(), styles, strict=True):
        assert to_hex(part.get_facecolor()[0]).upper() == style.color
        assert bool(part.get_hatch()) == bool(style.pattern)
        assert set(part.get_hatch() or "") == set(style.pattern)
    assert drawn["wait"].get_hatch() and drawn["idle"].get_hatch()
    for patch, style in zip(figure.legends[0].get_patches(), styles[:-1], strict=True):
        assert to_hex(patch.get_facecolor()).upper() == style.color
        assert set(patch.get_hatch() or "") == set(style.pattern)


def test_every_pattern_of_the_palette_has_a_hatch_of_its_own():
    ranks = [palette.rank_style(rank) for rank in range(28)]
    styles = [*palette.KINDS.values(), palette.OTHER, palette.UNDECODED, *ranks]
    used = {style.pattern: paper.look(style)["hatch"] for style in styles}
    assert len(set(used.values())) == len(used) == 7 and not used[""]


def test_every_message_is_an_arrow_from_its_sender_to_its_receiver():
    trace = data_parallel(ranks=3)
    figure = viz.print.timeline(trace, messages=True)
    axes = figure.axes[0]
    drawn, table = arrows(axes), trace.messages
    np.testing.assert_allclose(drawn[:, 0], table.sent / MS)
    np.testing.assert_allclose(drawn[:, 2], table.received / MS)
    rows = axes.get_yticks()[2::2]  # the comm lane of each rank
    tail, head = rows[table.src], rows[table.dst]
    lean = np.sign(head - tail) * (13 + 24) / 2  # a row of collectives and what is in them
    np.testing.assert_allclose(drawn[:, 1], tail + lean)
    np.testing.assert_allclose(drawn[:, 3], head - lean)
    assert legend(figure)[-1] == "message"
    plain = viz.print.timeline(trace)
    assert not len(arrows(plain.axes[0]))  # each passes a row with labels
    assert "24 messages are left out: arrows past other rows would cover labels." in texts(plain)
    assert not len(arrows(viz.print.timeline(trace, messages=False).axes[0]))


def test_a_message_that_nobody_received_is_a_line_to_a_cross_where_it_was_sent():
    messages = {"src": [0, 0], "dst": [1, 1], "sent": [0.2, 0.3], "received": [0.6, np.nan]}
    trace = Trace([span(0), span(1)], messages, meta={"outcome": "failed"})
    figure = viz.print.timeline(trace)
    assert len(arrows(figure.axes[0])) == 1
    (line,) = figure.axes[0].lines
    np.testing.assert_allclose(line.get_xydata()[:2], [[300, 24], [300, 30]])
    assert line.get_marker() == "x" and line.get_markevery() == (1, 3)
    assert "never received" in legend(figure)
    assert "The run failed; the figure shows what was recorded until then." in texts(figure)


def test_more_messages_than_a_page_can_show_are_left_out_and_it_says_so():
    trace = data_parallel(ranks=8, steps=2)
    figure = viz.print.timeline(trace)
    assert len(trace.messages) == 448 and not len(arrows(figure.axes[0]))
    assert any(line.startswith("448 messages are too many for arrows") for line in texts(figure))
    assert "message" not in legend(figure)


def test_a_step_is_drawn_alone_with_the_messages_that_its_spans_carry():
    trace = data_parallel(ranks=3, steps=3)
    figure = viz.print.timeline(trace, step=1, messages=True)
    spans = trace.spans[trace.spans.step == 1]
    assert len(boxes(figure.axes[0], "step")) == 1
    for kind, of in pieces(trace, "device").items():
        own = trace.spans.step[of[:, 0].astype(int)] == 1
        assert kind == "step" or len(boxes(figure.axes[0], kind)) == own.sum()
    sent = trace.messages.sent[trace.messages.step == 1]
    np.testing.assert_allclose(arrows(figure.axes[0])[:, 0], sent / MS)
    low, high = figure.axes[0].get_xlim()
    assert low < spans.start.min() / MS and spans.end.max() / MS < high
    assert high - low < 1.05 * (spans.end.max() - spans.start.min()) / MS


def test_of_too_many_spans_the_longest_are_drawn_and_it_says_so():
    trace = Trace([span(start=i, end=i + (0.9 if i == 5 else 0.5)) for i in range(10)])
    figure = viz.print.timeline(trace, max_spans=1)
    np.testing.assert_allclose(boxes(figure.axes[0], "forward")[:, :2], [[5, 5.9]])
    assert "The longest 1 of 10 spans are drawn." in texts(figure)


def test_a_label_stands_only_where_it_fits_into_its_bar():
    spans = [
        span(start=0, end=50, name="wide enough"),
        span(start=50, end=57, name="too narrow"),
        span(start=57, end=100, kind="collective", name="on blue"),
    ]
    figure = viz.print.timeline(Trace(spans), title="T")
    axes = figure.axes[0]
    figure.draw_without_rendering()
    labels = {label.get_text(): label for label in axes.texts}
    assert set(labels) == {"wide enough", "on blue"}
    assert labels["on blue"].get_color() == "#FFFFFF"
    for name, (left, right) in {"wide enough": (0, 50), "on blue": (57, 100)}.items():
        inside = labels[name].get_window_extent().transformed(axes.transData.inverted())
        assert left < inside.x0 < inside.x1 < right
        assert (inside.x0 + inside.x1) / 2 == pytest.approx((left + right) / 2, abs=0.5)


def inside(figure):
    """Whether every word lies on the sheet, and none of the axis on another."""
    figure.draw_without_rendering()
    sheet = figure.bbox.padded(1)
    for text in words(figure):
        box = text.get_window_extent()
        assert sheet.x0 <= box.x0 and box.x1 <= sheet.x1, text.get_text()
        assert sheet.y0 <= box.y0 and box.y1 <= sheet.y1, text.get_text()
    for axes in figure.axes:
        along = [name.get_window_extent() for name in axes.get_xticklabels() if name.get_text()]
        along.sort(key=lambda box: box.x0)
        assert all(a.x1 < b.x0 for a, b in zip(along, along[1:], strict=False))
    return True


@pytest.mark.parametrize("width", [3.0, 7.2])
@pytest.mark.parametrize("start", [0.0, 300.0])
def test_every_word_lies_on_the_sheet_and_numbers_do_not_touch(start, width):
    warning = "the run was late " * 20
    spans = [span(start=start, end=start + MS, name="x" * 500), span(rank=11, start=start)]
    spans[1] |= {"lane": "W" * 500, "kind": "k" * 500, "end": start + MS}
    trace = Trace(spans, meta={"clock": "paced", "warning": warning, "machine": "m" * 300})
    figure = viz.print.timeline(trace, title="W" * 500, width=width)
    assert figure.get_figwidth() == width and inside(figure)
    assert inside(viz.print.messages(ring(3, 7), width=width))


def test_words_of_a_program_are_neither_tex_nor_markup_and_long_ones_are_cut():
    spans = [
        span(name=EVIL, end=9.0),
        span(name="n" * 500, start=9, end=18),
        span(rank=1, lane=EVIL, kind=EVIL, end=9.0),
        span(
            rank=1, lane="compute", kind="_hidden", start=9, end=18, name="\x00\x1b\ud800漢 ü\n\t→"
        ),
    ]
    figure = viz.print.timeline(Trace(spans), title=EVIL)
    seen = texts(figure)
    assert not any(text.get_parse_math() or text.get_usetex() for text in words(figure))
    assert EVIL in seen and EVIL[:23] + "…" in seen and "n" * 23 + "…" in seen
    assert f"rank 1 · {EVIL[:15]}…" in seen
    assert "□ ü →" in seen  # what the type lacks is shown to lack
    assert legend(figure)[-1] == f"{EVIL}, _hidden"[:29] + "…"


def test_settings_of_a_user_leave_figures_as_they_are():
    def drawn():
        for figure in (viz.print.timeline(data_parallel(2)), viz.print.messages(ring(2, 4))):
            assert not any(text.get_usetex() for text in words(figure))
            yield from (axes.get_position().bounds for axes in figure.axes)

    usual = list(drawn())
    with matplotlib.rc_context({"text.usetex": True, "figure.constrained_layout.use": True}):
        assert list(drawn()) == usual


def test_ranks_without_spans_have_a_row_that_says_so():
    figure = viz.print.timeline(Trace([span(1)], meta={"ranks": 3}))
    axes = figure.axes[0]
    found = {each.get_text(): each.get_position()[1] for each in axes.texts}
    rows = axes.get_yticks()
    assert found["rank 0 recorded nothing"] == rows[0]
    assert found["rank 2 recorded nothing"] == rows[2]


def test_an_empty_trace_and_one_span_are_figures():
    empty = viz.print.timeline(Trace())
    assert "nothing was recorded" in texts(empty) and not empty.axes[0].collections
    one = viz.print.timeline(Trace([span(start=2.0, end=2.0)]))
    np.testing.assert_allclose(boxes(one.axes[0], "forward")[0, :2] * 1e-6, 2.0)
    low, high = one.axes[0].get_xlim()
    assert low < 2e6 < high
    assert len(viz.print.messages(Trace()).axes) == 1


def test_spans_without_times_on_the_clock_are_left_out():
    spans = [span(wall_start=1.0, wall_end=3.0), span(start=4, end=5, kind="update")]
    figure = viz.print.timeline(Trace(spans, meta={"clock": "wall"}))
    np.testing.assert_allclose(boxes(figure.axes[0], "forward")[0, :2], [1, 3])
    assert legend(figure) == ["forward"]


def test_what_cannot_be_drawn_is_refused():
    one = Trace([span()])
    with pytest.raises(ValueError, match="clock='wall' cannot be drawn"):
        viz.print.timeline(one, clock="wall")
    with pytest.raises(ValueError, match="step=4 has no span in this Trace"):
        viz.print.timeline(one, step=4)
    with pytest.raises(ValueError, match="buffer='x' was not watched in this run"):
        viz.print.messages(ring(2, 4), buffer="x")
    with pytest.raises(ValueError, match="columns=0 has to be a whole number, 1 or more"):
        viz.print.messages(ring(2, 4), columns=0)
    with pytest.raises(ValueError, match="max_frames=0 has to be a whole number, 1 or more"):
        viz.print.messages(ring(2, 4), max_frames=0)
    with pytest.raises(ValueError, match=r"columns=7 leave 0\..* use fewer columns, or a larger"):
        viz.print.messages(ring(4, 16), columns=7, width=3.0)
    for draw in (viz.print.timeline, viz.print.messages):
        with pytest.raises(ValueError, match="theme='no' is not a theme"):
            draw(one, theme="no")
        for width in (2.9, float("nan")):
            with pytest.raises(ValueError, match=f"width={width} inches leave no room"):
                draw(one, width=width)


def panels(figure):
    """The axes of each panel by the panel's name, from its bold words."""
    heads = [text for text in figure.texts[1:] if text.get_weight() == "bold"]
    return dict(zip([head.get_text() for head in heads], figure.axes, strict=True))


@pytest.mark.parametrize("ranks", [2, 4, 5])
def test_a_panel_holds_a_stripe_for_each_rank_whose_contribution_a_cell_holds(ranks):
    trace = ring(ranks, 16)
    drawn = panels(viz.print.messages(trace))
    frames = viz.message_frames(trace)
    assert list(drawn) == [frame.name for frame in frames]
    slot = 0.62 / ranks
    for frame, axes in zip(frames, drawn.values(), strict=True):
        shown = np.zeros((ranks, 16, ranks), int)  # rank, cell, source
        for source in range(ranks):
            for left, right, top, bottom in boxes(axes, f"from rank {source}"):
                rank = round(top - source * slot + 0.31)
                assert top == pytest.approx(rank - 0.31 + source * slot)
                assert bottom - top == pytest.approx(slot)
                shown[rank, int(left) : int(right), source] += 1
        held = [viz.decode(trace.buffers[p]["array"], ranks) for p in frame.snapshots.values()]
        np.testing.assert_array_equal(shown, np.array(held))


def test_cells_sent_are_framed_solid_those_received_dashed_and_arrows_run_over_them():
    trace = ring(4, 16)
    drawn = panels(viz.print.messages(trace))
    table = trace.messages
    for frame, axes in zip(viz.message_frames(trace), drawn.values(), strict=True):
        rows = list(frame.messages)
        low, high = table.offset[rows], table.offset[rows] + table.count[rows]
        src, dst = table.src[rows].astype(float), table.dst[rows].astype(float)
        for name, rank, dashed in (("cells sent", src, False), ("cells received", dst, True)):
            wanted = np.stack([low, high, rank - 0.31, rank + 0.31], axis=1)
            np.testing.assert_allclose(ordered(boxes(axes, name)), ordered(wanted))
            (part,) = [part for part in axes.collections if part.get_label() == name]
            assert (part.get_linestyle()[0][1] is not None) == dashed
        lean = np.sign(dst - src) * 0.31
        middle = (low + high) / 2
        wanted = np.stack([middle, src + lean, middle, dst - lean], axis=1)
        np.testing.assert_allclose(arrows(axes), wanted.reshape(-1, 4))


def test_messages_of_the_same_cells_run_side_by_side_and_others_beside_the_buffer():
    trace = ring(3, 6)
    table = trace.messages
    table.src[:3], table.dst[:3] = 0, [1, 2, 1]
    table.offset[:2], table.count[:2] = 0, 6
    table.offset[2] = -1
    figure = viz.print.messages(trace, max_frames=2)
    x = sorted(arrows(figure.axes[1])[:, 0])
    assert x[:2] == pytest.approx([2, 4]) and x[2] > 6
    assert figure.axes[1].get_xlim()[1] > x[2]
    assert any("beyond it: not from or to its cells" in line for line in texts(figure))


def test_without_a_watched_buffer_only_messages_are_drawn():
    trace = data_parallel(2)
    figure = viz.print.messages(trace, step=0)
    assert legend(figure) == ["message"]
    assert sum(len(arrows(axes)) for axes in figure.axes) == len(trace.messages)
    assert any(line.startswith("No buffer was watched") for line in texts(figure))
    assert not any(axes.get_xticks().size for axes in figure.axes)


def test_what_is_twice_in_a_cell_or_no_sum_is_marked():
    def sabotage(hop, rank, buffer):
        if hop == 0 and rank == 1:
            buffer[0:4] *= 2
        if hop == 1 and rank == 0:
            buffer[8:12] += 0.5

    figure = viz.print.messages(ring(4, 16, sabotage), max_frames=3)
    marks = [sorted({mark.get_text() for mark in axes.texts}) for axes in figure.axes]
    assert marks == [[], ["×2"], ["?", "×2"]]
    assert boxes(figure.axes[2], "not a sum of contributions").tolist() == [[8, 12, -0.31, 0.31]]
    assert "not a sum of contributions" in legend(figure)


def test_panels_stand_in_columns_and_only_the_first_names_the_ranks():
    figure = viz.print.messages(ring(4, 16), columns=3)
    places = [axes.get_position() for axes in figure.axes]
    assert len(places) == 7
    left = [round(place.x0, 6) for place in places]
    assert left == (left[:3] * 3)[:7] and left[0] < left[1] < left[2]
    tops = [round(place.y1, 6) for place in places]
    assert tops[0] == tops[2] > tops[3] == tops[5] > tops[6]
    named = [[name.get_text() for name in axes.get_yticklabels()] for axes in figure.axes]
    ranks = [f"rank {rank}" for rank in range(4)]
    assert [any(names) for names in named] == [True, False, False] * 2 + [True]
    assert named[0] == named[3] == ranks
    numbered = [bool(axes.get_xticks().size) for axes in figure.axes]
    assert numbered == [False] * 4 + [True] * 3  # those below which no panel stands
    assert len(viz.print.messages(ring(2, 4), columns=9).axes) == 3


def test_too_many_panels_are_cut_and_it_says_so():
    figure = viz.print.messages(ring(4, 16), max_frames=3)
    assert len(figure.axes) == 3
    assert "The first 3 of 7 pictures are shown." in texts(figure)


def test_the_cells_have_the_buffers_name_as_it_is_written():
    trace = ring(2, 4)
    for snapshot in trace.buffers:
        snapshot["name"] = "$a_b$"
    figure = viz.print.messages(trace)
    assert "cells of the watched buffer $a_b$" in texts(figure)
    assert not any(text.get_parse_math() for text in words(figure))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_theme_paints_its_own_background_and_words(theme):
    colors = palette.THEMES[theme]
    for figure in (
        viz.print.timeline(data_parallel(2), theme=theme),
        viz.print.messages(ring(2, 4), theme=theme),
    ):
        assert to_hex(figure.get_facecolor()).upper() == colors["paper"]
        own = {to_hex(text.get_color()).upper() for text in words(figure)}
        labels = {to_hex(text.get_color()).upper() for text in figure.axes[0].texts}
        assert own - labels == {colors["ink"], colors["faint"]}
        for axes in figure.axes:
            assert to_hex(axes.get_facecolor()).upper() == colors["paper"]
            heads = [part for part in axes.collections if isinstance(part, Quiver)]
            assert {to_hex(part.get_facecolor()[0]).upper() for part in heads} <= {colors["ink"]}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figures_are_written_as_svg_pdf_and_png(kind, theme, tmp_path):
    evil = [span(name=EVIL, end=9.0), span(1, lane=EVIL, end=9.0)]
    figures = [
        viz.print.timeline(data_parallel(2), theme=theme),
        viz.print.timeline(Trace(evil), theme=theme, title="-- <!-- &amp; -->"),
        viz.print.timeline(Trace(), theme=theme),
        viz.print.messages(ring(3, 7), theme=theme),
    ]
    for i, figure in enumerate(figures):
        path = tmp_path / f"{i}.{kind}"
        figure.savefig(path)
        data = path.read_bytes()
        assert data.startswith({"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}[kind])
        if kind == "svg":
            ElementTree.fromstring(data)
            assert ("rank 0" in data.decode()) == (i != 2)
        if kind == "png":
            width = int.from_bytes(data[16:20], "big")
            assert width == 7.2 * 110


def test_a_notebook_shows_the_figure_as_a_png():
    assert viz.print.timeline(data_parallel(2))._repr_png_().startswith(b"\x89PNG")


def test_pyplot_is_not_touched_and_matplotlib_is_loaded_for_print_alone():
    code = (
        "import sys, dlviz; dlviz.viz.timeline; assert 'matplotlib' not in sys.modules; "
        "figure = dlviz.viz.print.timeline(dlviz.Trace()); figure._repr_png_(); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'sculpture'"):
        viz.sculpture  # noqa: B018


def test_16384_spans_are_a_path_for_each_kind_and_crowded_ones_have_their_hue():
    turn = np.tile(np.arange(2048), 8)
    kind = np.array(["forward", "backward", "send", "wait"], object)[turn % 4]
    rank = np.repeat(np.arange(8), 2048)
    trace = Trace({"rank": rank, "kind": kind, "start": turn * MS, "end": turn * MS + 0.9 * MS})
    figure = viz.print.timeline(trace)
    axes = figure.axes[0]
    assert len(axes.collections) == 4 and not axes.texts
    for part in axes.collections:
        assert len(boxes(axes, part.get_label())) == 4096
        thin, usual = part.get_paths()
        assert len(thin.vertices) == 5 * 4096 and not len(usual.vertices)
        color = palette.KINDS[part.get_label()].color
        assert to_hex(part.get_edgecolor()[0]).upper() == color
        assert part.get_linewidth()[0] == pytest.approx(0.15)
    few = viz.print.timeline(data_parallel(2)).axes[0].collections[0]
    assert few.get_linewidth()[0] == pytest.approx(0.45)


def all_reduce(comm, length):
    import torch

    from dlviz.collectives import ring as algorithm
    from dlviz.viz import encode

    tensor = torch.tensor(encode(comm.rank, comm.size, length), dtype=torch.float64)
    comm.watch(tensor, "gradient")
    algorithm.all_reduce(comm, tensor)


@pytest.mark.slow
def test_a_real_run_is_printed_with_every_message_it_sent():
    trace = dlviz.launch(all_reduce, ranks=3, args=(7,)).trace
    drawn = viz.print.timeline(trace, messages=True)
    assert len(arrows(drawn.axes[0])) == len(trace.messages) == 12
    drawn = panels(viz.print.messages(trace))
    assert list(drawn) == ["start", *(f"round {i} of 4" for i in range(1, 5))]
    assert sum(len(arrows(axes)) for axes in drawn.values()) == 12
    last = drawn["round 4 of 4"]
    for source in range(3):
        edges = boxes(last, f"from rank {source}")
        assert (edges[:, 1] - edges[:, 0]).sum() == 3 * 7


def test_drawing_leaves_the_trace_as_it_is():
    trace = data_parallel(2)
    before = {name: trace.spans[name].copy() for name in trace.spans.names}
    viz.print.timeline(trace)
    viz.print.messages(trace)
    for name, column in before.items():
        np.testing.assert_array_equal(trace.spans[name], column)

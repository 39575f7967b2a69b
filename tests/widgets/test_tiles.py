"""The message player over an image that is cut between ranks: whose pixel each cell holds."""

from __future__ import annotations

import json

import node
import numpy as np
import pytest

import dlviz
from dlviz.analysis.tiles import OUTSIDE, cut_image
from dlviz.parallel.convolution.picture import exchange, pixels, watch_tile
from dlviz.sim.convolution import blocks, needed
from dlviz.viz.scenes import scene_of
from dlviz.viz.tiles import TiledScene
from dlviz.widgets import MessagePlayer

SHAPE = 7, 5
DRAWN = """const scene = unpacked(v[0]); const layout = m.layoutOf(scene, 700, 320);
return scene.frames.map((_, i) => {
    const cells = m.cellsOf(scene, layout, i);
    return cells.map((cell) => ({
        rank: cell.rank, words: tileWords(scene, cell), pixels: pixelsOf(scene, layout, cell),
        brought: broughtBy(scene, cells, layout, i),
    }));
});"""
FROM = {"unpacked": "player/state.js"}
FROM |= dict.fromkeys(("pixelsOf", "tileWords", "broughtBy"), "player/tiles.js")


def drawn(trace):
    """Of each frame the tiles as they are drawn."""
    state = json.loads(MessagePlayer(trace).state)
    return node.run("player/geometry.js", DRAWN, state, also=FROM)


@pytest.fixture(scope="module")
def trace():
    return dlviz.launch(exchange, ranks=4, args=(SHAPE, (2, 2), 3)).trace


def test_the_tiles_are_what_the_outputs_read_and_in_the_end_hold_it(trace):
    image = cut_image(trace)
    rows, columns = (blocks(length, 2) for length in SHAPE)
    for rank in range(4):
        own = *rows[rank // 2], *columns[rank % 2]
        assert image.own[rank] == own
        assert image.held[rank] == (
            *needed(*own[:2], 3, padding=1),
            *needed(*own[2:], 3, padding=1),
        )
    scene = scene_of(trace)
    for rank, snapshot in scene.frames[-1].snapshots.items():
        expected = np.where(image.place(rank) == OUTSIDE, -1, image.place(rank))
        np.testing.assert_array_equal(scene.numbers[snapshot], expected)


def test_each_message_is_a_frame_that_brings_its_senders_pixels(trace):
    scene, whole = scene_of(trace), pixels(*SHAPE).numpy() - 1
    owners = scene.image.owners()
    assert isinstance(scene, TiledScene) and len(scene.frames) == 1 + 12
    arrived = trace.messages.wall_received[[row for f in scene.frames[1:] for row in f.messages]]
    assert (np.diff(arrived) > 0).all()
    for number, frame in enumerate(drawn(trace)[1:], 1):
        (row,) = scene.frames[number].messages
        src, dst = (int(trace.messages[end][row]) for end in ("src", "dst"))
        changed = {tile["rank"]: [p for p in tile["pixels"] if p["changed"]] for tile in frame}
        assert [rank for rank, found in changed.items() if found] == [dst]
        came = [pixel["pixel"] for pixel in changed[dst]]
        assert {owners[pixel] for pixel in came} == {src} == {p["owner"] for p in changed[dst]}
        assert len(came) * 8 == trace.messages.nbytes[row]
        (brought,) = frame[0]["brought"]
        assert sorted(p["pixel"] for p in brought["from"]) == sorted(came)
        assert all(pixel["own"] for pixel in brought["from"])
        y, x = np.divmod(came, SHAPE[1])
        assert whole[y.min() : y.max() + 1, x.min() : x.max() + 1].size == len(came)
        assert scene.summary(scene.frames[number]).startswith(
            f"rank {src} → rank {dst}, {len(came)} pi"
        )


def test_no_tile_covers_another_and_each_cell_lies_at_its_place(trace):
    boxes = []
    for tile in drawn(trace)[-1]:
        x, y = ({pixel[at] for pixel in tile["pixels"]} for at in "xy")
        assert len(x) * len(y) == len(tile["pixels"])  # no two at one place
        side = tile["pixels"][0]["width"]
        boxes.append((min(x), max(x) + side, min(y), max(y) + side))
        assert not any(pixel["wrong"] for pixel in tile["pixels"])
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            assert other[1] < one[0] or other[3] < one[2] or one[1] < other[0]


def test_the_words_of_a_tile_count_whose_pixels_it_holds(trace):
    first, *_, last = ([tile["words"] for tile in frame] for frame in drawn(trace))
    assert first[0] == "rank 0 owns rows 0–3 and columns 0–2; holds its own alone; 8 empty"
    assert last[0] == (
        "rank 0 owns rows 0–3 and columns 0–2; holds 4 of rank 1, 3 of rank 2, 1 of rank 3"
    )


def strides(comm):
    return exchange(comm, (11, 8), (3, 1), 4, 2, 1, 1)


def test_even_kernels_strides_and_whole_columns_have_their_places_too():
    frames = drawn(dlviz.launch(strides, ranks=3).trace)
    assert not any(pixel["wrong"] for tile in frames[-1] for pixel in tile["pixels"])
    assert not any("empty" in tile["words"] for tile in frames[-1])


def idle(comm):
    return exchange(comm, (3, 4), (4, 1))


@pytest.mark.filterwarnings("ignore:ranks 3 .* are idle")
def test_a_rank_without_outputs_has_no_tile():
    *tiles, last = drawn(dlviz.launch(idle, ranks=4).trace)[-1]
    assert last["pixels"] == [] and last["words"] == "rank 3: no contents were watched"
    assert all(len(tile["pixels"]) == 3 * 6 and "empty" not in tile["words"] for tile in tiles)


def mistaken(comm):
    """Each of two ranks sends its first row, and puts the other's above its own."""
    image = pixels(4, 3)
    tile = image.new_zeros(4, 3)
    tile[1:3] = image[2 * comm.rank : 2 * comm.rank + 2]
    held = (2 * comm.rank - 1, 2 * comm.rank + 3), (0, 3)
    watch_tile(comm, tile, ((2 * comm.rank, 2 * comm.rank + 2), (0, 3)), held, (4, 3))
    sent = comm.isend(tile[1].contiguous(), 1 - comm.rank)
    comm.recv(tile[0], 1 - comm.rank)
    sent.wait()


def test_a_wrong_exchange_shows_as_it_is():
    trace = dlviz.launch(mistaken, ranks=2).trace
    scene = scene_of(trace)
    remarks = scene.oddities(2)
    assert "rank 0 holds pixel (2, 0) where padding belongs" in remarks
    assert "rank 1 holds pixel (0, 0) where (1, 0) belongs" in remarks
    assert "rank 0 still has nothing in 3 cells" in remarks
    wrong = [[p["pixel"] for p in tile["pixels"] if p["wrong"]] for tile in drawn(trace)[-1]]
    assert wrong == [[6, 7, 8], [0, 1, 2]]


def short(comm):
    watch_tile(comm, pixels(2, 2), ((0, 2), (0, 2)), ((0, 2), (0, 3)), (4, 3))


def test_a_buffer_of_another_size_than_said_is_refused():
    with pytest.raises(ValueError, match="'pixels' of rank 0 has 4 cells, .* of one channel"):
        MessagePlayer(dlviz.launch(short, ranks=1).trace)


def test_the_still_picture_has_both_ends(trace):
    figure = MessagePlayer(trace, title="Halos").picture()
    words = {text.get_text() for text in figure.findobj(lambda own: hasattr(own, "get_text"))}
    assert {"Halos", "start", "message 12 of 12", "rank 3"} <= words
    first, last = figure.axes
    shown = [sum(len(c.get_paths()) for c in axes.collections) for axes in (first, last)]
    assert all(shown)


@pytest.mark.slow
def test_it_plays_in_a_browser_and_saves_a_picture(browser, trace, tmp_path):
    page, faults = browser.new_page(), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(MessagePlayer(trace).save_html(tmp_path / "page.html").as_uri())
    lit = page.locator(".dlv-chunks .dlv-lit")
    assert lit.count() == 0
    page.locator(".dlv").focus()
    for key in ("ArrowRight", "p"):
        page.keyboard.press(key)
    assert (
        lit.count() in (1, 2, 3, 4)
        and page.locator(".dlv-move.dlv-sent[data-message]").count() == 1
    )
    sender = int(trace.messages.src[scene_of(trace).frames[2].messages[0]])
    page.locator(f"[data-cell='{sender}:0']").click(position={"x": 12, "y": 12}, force=True)
    assert page.locator(".dlv-score").inner_text() == "1 of 1 right"
    page.keyboard.press("p")
    with page.expect_download() as saved:
        page.get_by_role("button", name="SVG").click()
    assert saved.value.path().read_text().count("dlv-owned") == 4 + 2  # and in its style and legend
    page.keyboard.press("t")
    assert "holds" in page.locator(".dlv-tables").inner_text()
    page.close()
    assert not faults

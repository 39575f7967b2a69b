"""Makes the README's pictures from real runs: `make pictures`, or `python docs/pictures.py`.

ring.gif       the MessagePlayer stepping through a ring all-reduce on four ranks
ring.png       the same for print: where the reduce-scatter is over
timeline.png   one step of data parallel on four ranks
"""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import dlviz

FOLDER = Path(__file__).parent
WIDTH, HEIGHT = 860, 760  # of the window, in pixels
SECONDS, AT_THE_END = 1.4, 3.0  # that a frame of the loop stays
STILL = 3  # the round after which each rank holds a whole chunk
TITLE = "One training step on four ranks: buckets of gradients travel while backward goes on"


def main() -> None:
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=next(filter(None, map(shutil.which, names)), None),
            args=["--no-sandbox"],
        )
        ring(browser, FOLDER)
        browser.close()
    timeline(FOLDER)


def ring(browser: Any, folder: Path) -> None:
    """Write the loop and its still, each frame as the player shows it in a browser."""
    run = dlviz.launch(_add_up, ranks=4, args=(starts := _starts(4, 12),))
    assert run.results == [np.sum(starts, axis=0).tolist()] * 4
    player = dlviz.widgets.MessagePlayer(run.trace, title="A ring all-reduce on four ranks")
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    with tempfile.TemporaryDirectory() as scratch:
        player.save_html(f"{scratch}/player.html")
        page.goto(f"file://{scratch}/player.html")
        page.add_style_tag(
            content=".dlv-lines, .dlv-summary { display: none }"
        )  # this file's lines
        frames = []
        for number in range(len(dlviz.viz.message_frames(run.trace))):
            if number:
                page.locator("button", has_text="next").dispatch_event("click")
            shot = page.locator("#dlviz").screenshot(animations="disabled")
            frames.append(Image.open(io.BytesIO(shot)).convert("RGB"))
    page.close()
    first, *others = [_few_colors(frame, 128) for frame in frames]
    times = [1000 * SECONDS] * len(others) + [1000 * AT_THE_END]
    first.save(
        folder / "ring.gif",
        save_all=True,
        append_images=others,
        duration=times,
        loop=0,
        optimize=True,
    )
    _few_colors(frames[STILL], 256).save(folder / "ring.png", optimize=True)


def timeline(folder: Path) -> None:
    images, labels = dlviz.datasets.digits("train")
    batches = list(dlviz.datasets.batches(images, labels, batch=64, steps=4))
    run = dlviz.launch(
        dlviz.parallel.data.train,
        ranks=4,
        machine=dlviz.machine.classroom(4),
        args=(dlviz.models.MLP((64, 128, 128, 10)), batches),
        kwargs={"bucket_bytes": 40_000},
    )
    drawn = dlviz.viz.print.timeline(run.trace, step=2, messages=False, title=TITLE)
    drawn.savefig(folder / "timeline.png", dpi=150)


def _starts(ranks: int, length: int) -> list[list[float]]:
    return [dlviz.viz.encode(rank, ranks, length) for rank in range(ranks)]


def _add_up(comm: dlviz.Comm, starts: list[list[float]]) -> list[float]:
    tensor = torch.tensor(starts[comm.rank], dtype=torch.float64)
    comm.watch(tensor, "tensor")
    dlviz.collectives.ring.all_reduce(comm, tensor)
    return tensor.tolist()


def _few_colors(image: Image.Image, colors: int) -> Image.Image:
    return image.quantize(colors, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)


if __name__ == "__main__":
    main()

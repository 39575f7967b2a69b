"""Run labs again and store their outputs: `make labs`, or `python labs/build.py NOTEBOOK...`.

A committed lab shows its results without a kernel: each interactive figure has a PNG beside it, and
each prediction an example guess, a wrong one of its question's. It has no widget state, no timing
metadata and no warning, and stays under 1 MB.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import kaleido
import nbformat
import numpy as np
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

from dlviz.grading.questions import by_lab

LABS = Path(__file__).resolve().parent
LIMIT = 1_000_000  # bytes
SECONDS_PER_CELL = 600
TRIES, LATE = 8, "times are not reliable"
FIGURE = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
ASKED = re.compile(r'(predict\(\s*"([^"]+)",\s*)\.\.\.')
PREDICTED = re.compile(r"\bpredicted\s(.*?)\sat\s+\d\d:\d\d:\d\d", re.DOTALL)
STILL = re.compile(r'<figure class="dlv-still.*src="data:image/png;base64,([^"]*)"', re.DOTALL)
WIDTH, COLORS = 800, 256  # pixels and colours of a figure's picture


def build(path: Path) -> None:
    """Run the notebook at `path` in its folder and write it back with its outputs.

    Raises nbclient's CellExecutionError if a cell fails, ValueError if one warns or if the result
    would exceed LIMIT; the file is then unchanged.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    with client.setup_kernel():
        run(client, notebook)
    notebook.metadata = {  # without widget state: 5 MB for each figure
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = as_shown(cell.outputs)
            complaints = [o.text for o in cell.outputs if o.get("name") == "stderr"]
            if complaints:
                raise ValueError(
                    f"{path.name}: cell {cell.execution_count} wrote to stderr: {complaints[0]!r}. "
                    "Fix it, or run the lab again when the machine is quiet."
                )
    text = written(notebook).replace(f"{LABS.parent}/", "")  # as the reader's own paths
    if len(text.encode()) > LIMIT:
        raise ValueError(
            f"{path.name} would hold {len(text.encode()):,} bytes, over the limit of {LIMIT:,}: "
            "draw fewer or smaller figures, or split the lab."
        )
    path.write_text(text, encoding="utf-8")


def run(client: NotebookClient, notebook: NotebookNode) -> None:
    """Run the cells one after the other. One whose paced runs were late is run again, up to TRIES
    times, as its warning asks the reader to do."""
    code = [(i, cell) for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    guesses = {each.asks: each.example for lab in by_lab().values() for each in lab}
    for number, (i, cell) in enumerate(code, 1):
        asked = cell.source
        cell.source = ASKED.sub(lambda m: f"{m[1]}{guesses[m[2]]:g}", asked)
        for _ in range(TRIES):
            client.execute_cell(cell, i)
            if not any(LATE in output.get("text", "") for output in cell.outputs):
                break
        cell.source = asked
        cell.execution_count = number
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number


def as_shown(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """A cell's outputs for a page: the printed text in one piece, without overwritten progress
    bars, a picture beside each figure and in place of each widget, and guesses named examples."""
    shown: list[NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream" and shown and shown[-1].get("name") == output.name:
            shown[-1].text += output.text
        elif output.get("data", {}).get("text/html") != "":  # a widget, whose still comes next
            shown.append(output)
    for output in shown:
        if output.output_type == "stream":
            lines = [line.rpartition("\r")[2] for line in output.text.split("\n")]
            output.text = PREDICTED.sub(r"example guess \1", "\n".join(lines))
        data = output.get("data", {})
        if "text/plain" in data:
            data["text/plain"] = PREDICTED.sub(r"example guess \1", data["text/plain"])
        drawn = None
        if FIGURE in data:
            drawn = picture(data[FIGURE])
        elif still := STILL.search(data.get("text/html", "")):
            drawn = small(base64.b64decode(still[1]))
            del data["text/html"]
        data.pop(WIDGET, None)
        if drawn:
            data["image/png"] = base64.b64encode(drawn).decode()
    return [output for output in shown if output.get("text", "any").strip()]


def picture(figure: dict[str, Any]) -> bytes:
    """A figure as PNG; of one with frames the last."""
    if figure.get("frames"):
        figure = at_the_end(figure)
    size = {"width": WIDTH, "height": 500}
    size |= {side: figure["layout"][side] for side in size if side in figure["layout"]}
    return small(kaleido.calc_fig_sync(figure, opts={"format": "png", **size}))


def at_the_end(figure: dict[str, Any]) -> dict[str, Any]:
    """The figure after its frames have been played, its slider at the end."""
    data, last = [*figure["data"]], figure["frames"][-1]
    for place, moved in zip(last["traces"], last["data"], strict=True):
        data[place] = {**data[place], **moved}
    active = {"active": len(figure["frames"]) - 1}
    sliders = [{**slider, **active} for slider in figure["layout"].get("sliders", [])]
    layout = {**figure["layout"], **last.get("layout", {}), "sliders": sliders}
    return {"data": data, "layout": layout}


def small(drawn: bytes) -> bytes:
    """The PNG in few of its own colours, a third of the bytes.

    Of similar colours the most frequent remains, so that the colours of kinds do not change.
    """
    pixels = np.asarray(Image.open(io.BytesIO(drawn)).convert("RGB"), dtype=np.int64)  # (h, w, 3)
    code, place, count = np.unique(
        pixels @ [1 << 16, 1 << 8, 1], return_inverse=True, return_counts=True
    )
    colors = np.stack([code >> 16, code >> 8 & 255, code & 255], axis=1)
    often = colors[np.argsort(-count, kind="stable")]
    _, first = np.unique((often >> 4) @ [1 << 8, 1 << 4, 1], return_index=True)
    palette = often[np.sort(first)[:COLORS]]
    nearest = ((colors[:, None] - palette) ** 2).sum(axis=2).argmin(axis=1)
    image = Image.fromarray(nearest[place].astype(np.uint8).reshape(pixels.shape[:2]), "P")
    image.putpalette(palette.astype(np.uint8).tobytes())
    stored = io.BytesIO()
    image.save(stored, "PNG", optimize=True)
    return stored.getvalue()


def written(notebook: NotebookNode) -> str:
    """The notebook as text, each figure on one line: indented, figures take half as much again."""
    figures = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if FIGURE in output.get("data", {}):
                figures.append(json.dumps(output.data[FIGURE], separators=(",", ":")))
                output.data[FIGURE] = f"figure {len(figures)}"
    text = nbformat.writes(notebook)
    for number, figure in enumerate(figures, 1):
        text = text.replace(f'"{FIGURE}": "figure {number}"', f'"{FIGURE}": {figure}', 1)
    return text if text.endswith("\n") else text + "\n"


def main(names: list[str]) -> None:
    os.environ["PLOTLY_RENDERER"] = "plotly_mimetype"  # the kernels' figures: plotly's own JSON
    os.environ["DLVIZ_PREDICTIONS"] = ""  # nobody's own predictions
    kaleido.start_sync_server(n=1, silence_warnings=True)
    try:
        for path in map(Path, names) if names else sorted(LABS.glob("*.ipynb")):
            start = time.perf_counter()
            build(path)
            seconds = time.perf_counter() - start
            print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB, {seconds:.1f} s", flush=True)
    finally:
        kaleido.stop_sync_server()


if __name__ == "__main__":
    main(sys.argv[1:])

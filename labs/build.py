"""Run labs again and store their outputs: `make labs`, or `python labs/build.py NOTEBOOK...`.

A committed lab shows its results on a page that has no kernel: each interactive figure has a PNG
beside it. It holds no widget state and no timing metadata, and stays under 1 MB.
"""

from __future__ import annotations

import base64
import io
import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

LABS = Path(__file__).resolve().parent
LIMIT = 1_000_000  # bytes
SECONDS_PER_CELL = 600


def build(path: Path) -> None:
    """Run the notebook at `path` in its folder and write it back with its outputs.

    Raises nbclient's CellExecutionError where a cell fails, ValueError where the result would be
    over LIMIT; the file is then left as it was.
    """
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    notebook.metadata = {  # and no widget state: 5 MB for each figure
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [slim(output) for output in cell.outputs if not is_progress(output)]
    text = nbformat.writes(notebook).replace(f"{LABS.parent}/", "")  # as the reader's own paths
    if len(text.encode()) > LIMIT:
        raise ValueError(
            f"{path.name} would hold {len(text.encode()):,} bytes, over the limit of {LIMIT:,}: "
            "draw fewer or smaller figures, or split the lab."
        )
    path.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")


def is_progress(output: NotebookNode) -> bool:
    """Whether this is a progress bar, which a page would show line by line."""
    return output.output_type == "stream" and "\r" in output.text


def slim(output: NotebookNode) -> NotebookNode:
    """The output with its picture in 128 colours, a third of the bytes."""
    data = output.get("data", {})
    if "image/png" in data:
        picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB")
        stored = io.BytesIO()
        picture.quantize(128, dither=Image.Dither.NONE).save(stored, "PNG", optimize=True)
        data["image/png"] = base64.b64encode(stored.getvalue()).decode()
    return output


def main(names: list[str]) -> None:
    # what the kernels' figures hold: plotly's own JSON and a picture of it
    os.environ["PLOTLY_RENDERER"] = "plotly_mimetype+png"
    for path in map(Path, names) if names else sorted(LABS.glob("*.ipynb")):
        start = time.perf_counter()
        build(path)
        seconds = time.perf_counter() - start
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""labs/build.py stores a lab's outputs; each committed lab is as it leaves them."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from loading import loaded
from nbformat import v4
from PIL import Image

from dlviz.viz import paths

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "labs" / "build.py"
WIDGET = "application/vnd.jupyter.widget-view+json"
SPAN = {"rank": 0, "lane": "compute", "kind": "forward", "start": 0.0, "end": 1.0}
LABS = sorted((ROOT / "labs").glob("*.ipynb"))


CELLS = (
    "from pathlib import Path\nprint(Path('.').resolve())",
    "import dlviz\nprint(dlviz.__file__)",
    "import plotly.graph_objects as go\ngo.Figure(go.Scatter(y=[1, 3, 2]))",
    "import ipywidgets\nipywidgets.IntSlider()",
    "import sys\nfor part in ('\\r50 %', '\\r    ', '\\r'):\n  sys.stderr.write(part)",
    f"dlviz.widgets.Timeline(dlviz.Trace([{SPAN}]))",
    """from dlviz.grading import predict
asked = predict("messages of a ring all-reduce, 4 ranks", ..., "messages")
asked.compare(24)""",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The folder of two labs, and the command that built them: the second one fails."""
    folder = tmp_path_factory.mktemp("labs")
    for name, cells in (("lab", CELLS), ("failing", ["1 / 0"])):
        notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
        nbformat.write(notebook, folder / f"{name}.ipynb")
    run = [sys.executable, BUILD, folder / "lab.ipynb", folder / "failing.ipynb"]
    return folder, subprocess.run(run, capture_output=True, text=True)


@pytest.mark.slow
def test_a_built_lab_holds_its_outputs_and_nothing_of_this_machine(built):
    folder, done = built
    path = folder / "lab.ipynb"
    assert done.stdout.startswith("lab.ipynb: "), done.stderr
    where, file, figure, _, progress, widget, asked = nbformat.read(path, as_version=4).cells
    assert progress.outputs == [], "what a progress bar left is not stored"
    assert where.outputs[0].text == f"{folder}\n", "a lab runs in its own folder"
    assert file.outputs[0].text == "dlviz/__init__.py\n"
    data = figure.outputs[0].data
    assert data["application/vnd.plotly.v1+json"]["data"][0]["type"] == "scatter"
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    (output,) = widget.outputs  # the picture that it brings
    assert set(output.data) == {"text/plain", "image/png"}
    assert output.data["text/plain"] == "Timeline"
    picture = Image.open(io.BytesIO(base64.b64decode(output.data["image/png"])))
    colors = {tuple(color) for _, color in picture.convert("RGB").getcolors(10_000)}
    assert (0x56, 0xB4, 0xE9) in colors  # the colour of forward
    said = " ".join(asked.outputs[0].data["text/plain"].split())
    assert "4 ranks: example guess 12 messages, measured 24 messages; off by a factor" in said
    assert "12 counts the reduce-scatter alone" in said and "..., " in asked.source
    text = path.read_text()
    assert len(text.splitlines()) < 300, "a figure takes one line"
    assert as_committed(path) == []


@pytest.mark.slow
def test_a_lab_that_fails_is_refused_and_left_alone(built):
    folder, done = built
    assert done.returncode != 0 and "ZeroDivisionError" in done.stderr
    assert "failing.ipynb: " not in done.stdout
    (cell,) = nbformat.read(folder / "failing.ipynb", as_version=4).cells
    assert cell.outputs == []


def test_a_picture_has_the_colour_of_even_the_smallest_patch(monkeypatch):
    drawn = np.random.default_rng(0).integers([256, 64, 16], size=(200, 200, 3), dtype=np.uint8)
    drawn[:100] = 255
    drawn[190:195, 190:195] = 213, 94, 0
    file = io.BytesIO()
    Image.fromarray(drawn).save(file, "PNG")
    module = import_build()
    monkeypatch.setattr(module.kaleido, "calc_fig_sync", lambda *_, **__: file.getvalue())
    stored = module.picture({"layout": {}})
    assert len(stored) < len(file.getvalue()) / 2
    shown = np.asarray(Image.open(io.BytesIO(stored)).convert("RGB")).astype(int)
    assert (shown[:100] == 255).all() and (shown[190:195, 190:195] == [213, 94, 0]).all()
    assert np.abs(shown - drawn).max() < 32
    assert len(np.unique(shown.reshape(-1, 3), axis=0)) <= module.COLORS


def test_the_picture_of_a_figure_with_frames_is_that_of_its_last(monkeypatch):
    module, drawn, file = import_build(), [], io.BytesIO()
    Image.new("RGB", (2, 2)).save(file, "PNG")
    draw = lambda figure, **_: drawn.append(figure) or file.getvalue()  # noqa: E731
    monkeypatch.setattr(module.kaleido, "calc_fig_sync", draw)
    points = {"sgd": np.array([[0.0, 2.0], [1.0, 1.0], [3.0, 0.5]])}
    figure = paths(points, lambda x, y: x**2 + y**2, x=(-4, 4), y=(-4, 4))
    stored = json.loads(figure.to_json())
    stored["frames"][-1]["layout"] = {"annotations": [{"text": "the end"}]}
    module.picture(stored)
    assert drawn[0]["layout"]["annotations"] == [{"text": "the end"}]
    assert list(drawn[0]["data"][1]["x"]) == [0, 1, 3] and drawn[0]["data"][1]["name"] == "sgd"
    assert drawn[0]["layout"]["sliders"][0]["active"] == 2
    assert len(stored["data"][1]["x"]) == 1 and stored["layout"]["sliders"][0]["active"] == 0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("stdout", "a" * 1_100_000, "over the limit of 1,000,000"),
        ("stderr", "UserWarning: late", "cell 1 wrote to stderr: 'UserWarning: late'"),
    ],
)
def test_a_lab_that_warns_or_grows_too_large_is_refused_and_left_alone(
    tmp_path, monkeypatch, name, text, message
):
    path = tmp_path / "lab.ipynb"
    nbformat.write(v4.new_notebook(cells=[v4.new_code_cell("0")]), path)

    def run(client, notebook):
        notebook.cells[0].outputs = [v4.new_output("stream", name=name, text=text)]
        notebook.cells[0].execution_count = 1

    module = import_build()
    monkeypatch.setattr(module, "run", run)
    monkeypatch.setattr(module.NotebookClient, "setup_kernel", contextlib.nullcontext)
    with pytest.raises(ValueError, match=message):
        module.build(path)
    assert nbformat.read(path, as_version=4).cells[0].outputs == []


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.name)
def test_a_committed_lab_is_fit_to_be_read(path):
    assert as_committed(path) == []


def import_build():
    return loaded(BUILD)


def as_committed(path: Path) -> list[str]:
    """What is wrong with the lab at `path` as a file."""
    text = path.read_text()
    lab = json.loads(text)
    code = [cell for cell in lab["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    figures = [o["data"] for o in outputs if "application/vnd.plotly.v1+json" in o.get("data", {})]
    faults = {
        "holds 1 MB or more": len(text.encode()) >= 1_000_000,
        "holds a warning": any(output.get("name") == "stderr" for output in outputs),
        "holds widget state": "widgets" in lab["metadata"],
        "holds timing metadata": any("execution" in cell["metadata"] for cell in code),
        "was not run": any(cell["execution_count"] is None for cell in code if cell["source"]),
        "holds a widget that no page can show": any(WIDGET in o.get("data", {}) for o in outputs),
        "has a figure without a PNG": not all("image/png" in data for data in figures),
        "names a path of the machine that ran it": f"{ROOT}/" in text,
    }
    return [fault for fault, found in faults.items() if found]

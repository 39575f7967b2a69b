"""The house: what computes lies in `analysis`, what draws in `viz` and `widgets`; colours in one
place, and a widget loads no plotly; what students read says why."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dlviz"
FILES = {layer: sorted((PACKAGE / layer).rglob("*.py")) for layer in ("viz", "widgets", "analysis")}
LAYOUT = PACKAGE / "viz/gantt/layout.py"  # heights of strips over each other: drawing, not analysis
INTERVALS = {"times_of", "seconds_open", "union", "reached", "by_rank", "codes", "bubble_formula"}
REDUCTIONS = {"accumulate", "at", "reduceat"}  # of numpy's functions: over time, or by group
FORMULAS = {"comb", "exp", "sqrt"}  # of math
DISTANCES = {"norm"}  # of numpy.linalg: on a picture
HEX = re.compile(r"#[0-9A-Fa-f]{6}\b")


def computed(source: str) -> set[str]:
    """What a module does that belongs into `analysis` or `sim`: it imports the helpers for
    intervals, reduces columns over time or by group, solves with numpy.linalg, has a formula with
    binomials, roots or powers, or divides what it has added up. What a function computes that
    imports torch is training, on a rank."""
    found = set()
    for node in outside_training(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names} & INTERVALS
        if isinstance(node, ast.Attribute):
            function = node.value
            of_numpy = isinstance(function, ast.Attribute) and ast.unparse(function.value) == "np"
            reduces = node.attr in REDUCTIONS and (of_numpy or node.attr == "reduceat")
            summed = node.attr == "cumsum" and ast.unparse(node.value) == "np"
            solves = ast.unparse(function) == "np.linalg" and node.attr not in DISTANCES
            formula = ast.unparse(function) == "math" and node.attr in FORMULAS
            if reduces or summed or solves or formula or node.attr in INTERVALS:
                found.add(node.attr)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and reduced(node.left):
            found.add("/")
    return found


def outside_training(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree but those in functions that import torch."""
    if isinstance(node, ast.FunctionDef) and "import torch" in map(ast.unparse, node.body):
        return
    yield node
    for each in ast.iter_child_nodes(node):
        yield from outside_training(each)


def reduced(node: ast.expr) -> bool:
    """Whether it is the sum or the mean of a column, as a number or not."""
    if not isinstance(node, ast.Call):
        return False
    of = node.func
    if isinstance(of, ast.Name) and of.id in ("float", "int"):
        return reduced(node.args[0])
    return isinstance(of, ast.Attribute) and of.attr in ("sum", "mean")


@pytest.mark.parametrize(
    "file",
    [*FILES["viz"], *FILES["widgets"]],
    ids=lambda file: str(file.relative_to(PACKAGE)),
)
def test_no_view_and_no_widget_computes_what_analysis_could(file):
    assert file == LAYOUT or computed(file.read_text()) == set()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from dlviz.analysis.columns import COMPUTE, union", {"union"}),
        ("np.maximum.accumulate(end)", {"accumulate"}),
        ("np.add.at(sent, pairs, nbytes)", {"at"}),
        ("of.reduceat(length, first)", {"reduceat"}),
        ("level = np.cumsum(change)", {"cumsum"}),
        ("metrics.bubble_formula(name, p, m) / m", {"bubble_formula"}),
        ("np.linalg.svd(updates)", {"svd"}),
        ("away = np.linalg.norm(points - label)", set()),
        ("math.comb(j, n) / math.comb(k, n)", {"comb"}),
        ("length = sigma * math.sqrt(parameters)", {"sqrt"}),
        ("waiting = float(waited.sum()) / (high - low)", {"/"}),
        ("share = own.mean() / whole, own.mean()", {"/"}),
        ("total = sent.sum() + 2 / scale", set()),
        ("def train(comm):\n    import torch\n    return error.sum() / rows", set()),
        ("def found(trace):\n    import json\n    return waited.sum() / ranks", {"/"}),
        ("strips.at(1), name.union(other)", {"union"}),
        ("from dlviz.analysis.columns import COMPUTE\nmetrics.busy(trace)", set()),
    ],
)
def test_the_check_sees_what_computes(source, found):
    assert computed(source) == found


@pytest.mark.parametrize(("layer", "most"), [("viz", 60), ("analysis", 80)])
def test_a_function_fits_on_two_screens_and_a_figures_on_one(layer, most):
    long = [
        (str(file.relative_to(ROOT)), node.name)
        for file in FILES[layer]
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= most
    ]
    assert long == []


def test_every_colour_of_python_is_the_palettes():
    palette = PACKAGE / "viz/palette.py"
    assert HEX.search(palette.read_text())
    files = [file for file in PACKAGE.rglob("*.py") if file != palette]
    assert [file.name for file in files if HEX.search(file.read_text())] == []


@pytest.mark.parametrize("package", ["plotly", "matplotlib"])
def test_importing_the_widgets_and_the_palette_loads_no(package):
    code = (
        f"import dlviz.widgets, dlviz.viz.palette, sys; assert {package!r} not in sys.modules\n"
        "import dlviz.viz; views = [getattr(dlviz.viz, name) for name in dlviz.viz.__all__]\n"
        "assert all(map(callable, views)) and dlviz.viz.timeline.__name__ == 'timeline'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# Files that a course reads in class.
READ = """
    parallel/data/ddp parallel/averaging/easgd/messages parallel/averaging/gossip
    parallel/server/hogwild parallel/data/late_all_reduce parallel/averaging/local_sgd
    parallel/data/naive parallel/server/parameter_server parallel/server/push_pull
    parallel/step/sharded_step
    parallel/server/stale_synchronous parallel/tensor/conjugate parallel/tensor/linear
    parallel/pipeline/run parallel/pipeline/stage_worker parallel/summa/grid
    federated/aggregation federated/client federated/partition federated/robust federated/rounds
    federated/server federated/secure/aggregate federated/secure/client federated/secure/masks
""".split()
LAYOUT_TOKENS = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_and_comments(source: str) -> tuple[int, int]:
    """How many lines of code a module has, its docstrings apart, and how many comments."""
    code: set[int] = set()
    comments = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        comments += token.type == tokenize.COMMENT
        if token.type not in {tokenize.COMMENT, *LAYOUT_TOKENS}:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            if ast.get_docstring(node) is not None:
                first = node.body[0]
                code.difference_update(range(first.lineno, (first.end_lineno or 0) + 1))
    return len(code), comments


@pytest.mark.parametrize("name", READ)
def test_what_students_read_has_a_comment_in_fourteen_lines_of_code(name):
    code, comments = code_and_comments((PACKAGE / f"{name}.py").read_text())
    assert 14 * comments >= code, f"{comments} comments in {code} lines of code"


def test_docstrings_and_blank_lines_are_no_code():
    source = (
        '"""One.\n\nTwo."""\n\nx = [\n    1,\n]\n\n\ndef f():  # why\n    """Of f."""\n    # why\n'
    )
    assert code_and_comments(source + "    return x\n") == (5, 2)

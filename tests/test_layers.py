"""The house: a layer imports only what its row of the table names, and importing dlviz is light."""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dlviz.cluster

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dlviz"
EVERYTHING = {"*"}


def table() -> dict[str, tuple[set[str], set[str]]]:
    """layer: (the layers of dlviz that it imports, the packages from elsewhere), of CONTRIBUTING's
    table."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("| layer |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in text.splitlines()[2:]]
    return {name: (set(ours.split()) - {"-"}, set(theirs.split()) - {"-"})
            for name, _, ours, theirs in rows}  # fmt: skip


TABLE = {"__init__": (set(), set()), "__main__": (EVERYTHING, EVERYTHING), **table()}
TORCH_FREE = (
    "trace",
    "schedules",
    "patterns",
    "machine",
    "analysis",
    "metrics",
    "sim",
    "board",
    "viz",
    "widgets",
)
HEAVY = {"torch", "plotly", "matplotlib", "pandas", "ipywidgets", "anywidget", "IPython"}

FILES = sorted(PACKAGE.rglob("*.py"))
parsed = functools.cache(ast.parse)  # each module once for all that is asked of it


def layer(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_level(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that run when the module is imported: none in a function or for types alone."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from module_level(node.orelse)
        else:
            for name in ("body", "orelse", "finalbody"):
                yield from module_level(getattr(node, name, []))
            for part in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
                yield from module_level(part.body)


def imports(source: str, package: tuple[str, ...]) -> set[str]:
    """Dotted names that the module imports; `from a import b` is "a.b", relative ones resolved."""
    found = set()
    for node in module_level(parsed(source).body):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            found |= {".".join((*base, alias.name)) for alias in node.names}
    return found


def offences(name: str, imported: set[str]) -> list[str]:
    """What a module of layer `name` imports and may not."""
    ours, theirs = TABLE[name]
    found = []
    for dotted in sorted(imported):
        top, *rest = dotted.split(".")
        if top == "dlviz":
            target = rest[0] if rest else "dlviz as a whole"
            if ours != EVERYTHING and target not in {*ours, name, "counts", "__version__"}:
                found.append(dotted)
        elif top not in sys.stdlib_module_names and theirs != EVERYTHING and top not in theirs:
            found.append(dotted)
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_module_imports_only_what_its_layer_may(file):
    package = file.relative_to(ROOT).parent.parts
    assert offences(layer(file), imports(file.read_text(), package)) == []


def test_the_table_names_every_layer_there_is_and_no_other():
    assert {layer(file) for file in FILES} == TABLE.keys()
    assert TABLE["collectives"] == ({"cluster", "sim", "compression"}, {"torch", "numpy"})


@pytest.mark.parametrize(
    ("name", "source", "found"),
    [
        ("machine", "import json, numpy as np", ["numpy"]),
        ("trace", "try:\n    import pandas\nexcept ImportError:\n    pass", ["pandas"]),
        ("trace", "def frame():\n    import pandas", []),
        ("trace", "if TYPE_CHECKING:\n    import torch\nelse:\n    import plotly", ["plotly"]),
        ("sim", "from torch.nn import functional", ["torch.nn.functional"]),
        ("collectives", "from dlviz.patterns import ring", ["dlviz.patterns.ring"]),
        ("collectives", "from dlviz import patterns", ["dlviz.patterns"]),
        ("collectives", "from ..patterns import ring", ["dlviz.patterns.ring"]),
        ("collectives", "from . import ring\nfrom .ring import all_reduce", []),
        ("viz", "import dlviz", ["dlviz"]),
        ("viz", "class A:\n    with b:\n        import dlviz.cluster", ["dlviz.cluster"]),
        ("cli", "import dlviz, tqdm, dlviz.viz", []),
    ],
)
def test_the_check_sees_an_import_that_breaks_the_table(name, source, found):
    assert offences(name, imports(source, ("dlviz", name))) == found


def names(node: ast.AST, package: tuple[str, ...]) -> set[str]:
    """Dotted names that an import anywhere in a module asks for, for types too."""
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Import):
            found |= {alias.name for alias in each.names}
        elif isinstance(each, ast.ImportFrom):
            base = package[: len(package) - each.level + 1] if each.level else ()
            base += tuple(each.module.split(".")) if each.module else ()
            found |= {".".join(base), *(".".join((*base, alias.name)) for alias in each.names)}
    return found


def circles(sources: dict[str, tuple[str, tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """Modules that import each other, in a circle; `sources` are text and package by dotted name.
    What a package's own modules import from the package itself counts only where it is a module."""
    asked = {
        name: {each for each in names(parsed(text), package) if each in sources and each != name}
        for name, (text, package) in sources.items()
    }
    # `from dlviz.trace import chrome` asks for the module, not for the package's __init__.
    for found in asked.values():
        found -= {each for each in found if any(other.startswith(f"{each}.") for other in found)}
    try:
        tuple(graphlib.TopologicalSorter(asked).static_order())
    except graphlib.CycleError as error:
        return [tuple(error.args[1])]
    return []


def test_no_module_imports_another_in_a_circle_for_types_neither():
    sources = {}
    for file in FILES:
        parts = file.relative_to(ROOT).with_suffix("").parts
        dotted = ".".join(parts).removesuffix(".__init__")
        sources[dotted] = file.read_text(), file.relative_to(ROOT).parent.parts
    assert circles(sources) == []


def test_a_circle_is_seen():
    one = "if TYPE_CHECKING:\n    from dlviz.trace.two import b"
    two = "def f():\n    from .one import a"
    package = ("dlviz", "trace")
    assert circles({"dlviz.trace.one": (one, package), "dlviz.trace.two": (two, package)})
    assert not circles({"dlviz.trace.one": (one, package), "dlviz.trace.two": ("", package)})


INSIDE = {"process", "recorder", "log", "waiting", "groups"}  # of a Comm
FROM_OUTSIDE = ("collectives", "parallel", "federated")


def inside_of_comm(source: str) -> list[str]:
    """What a module reaches for in a Comm (a name or attribute `comm`, or what a Comm is made of)
    that is not part of what it offers."""
    found = []
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else owner
            hidden = node.attr in INSIDE or node.attr.startswith("_")
            if node.attr == "process" or hidden and owner.strip("_") == "comm":
                found.append(ast.unparse(node))
    return found


def test_what_is_built_on_a_comm_uses_what_it_offers():
    files = [file for file in FILES if layer(file) in FROM_OUTSIDE]
    found = {str(file.relative_to(ROOT)): inside_of_comm(file.read_text()) for file in files}
    assert len(files) > 80 and {file: used for file, used in found.items() if used} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("comm.recorder.lane", ["comm.recorder"]),
        ("self.comm._incoming", ["self.comm._incoming"]),
        ("self._comm.recorder", ["self._comm.recorder"]),
        ("left.process.board", ["left.process"]),
        ("comm.step, comm.send, self._comm.rank, self.recorder", []),
    ],
)
def test_the_check_sees_who_reaches_into_a_comm(source, found):
    assert inside_of_comm(source) == found


def inside_of_cluster(source: str) -> set[str]:
    """What a module takes from inside `dlviz.cluster` that the package does not name itself."""
    found = {name.partition("dlviz.cluster.")[2] for name in names(parsed(source), ("dlviz",))}
    return found - {"", *dlviz.cluster.__all__}


def test_other_layers_take_of_cluster_what_it_names():
    files = [file for file in FILES if layer(file) != "cluster"]
    found = {str(file.relative_to(ROOT)): inside_of_cluster(file.read_text()) for file in files}
    assert {file: used for file, used in found.items() if used} == {}
    assert inside_of_cluster("def f():\n    from dlviz.cluster.stuck.waits import Wait") == {
        "stuck.waits",
        "stuck.waits.Wait",
    }
    assert inside_of_cluster("from dlviz.cluster import Comm, process") == {"process"}


MAKERS = {"rank", "comm", "collective", "warm"}  # of a process or of what it is made of


def parts_of_a_process(source: str) -> list[str]:
    """What a module reads from a process: the parts of `process`, or of `….process`."""
    attributes = [node for node in ast.walk(parsed(source)) if isinstance(node, ast.Attribute)]
    owners = [(ast.unparse(node.value).rpartition(".")[2].strip("_"), node) for node in attributes]
    return [ast.unparse(node) for owner, node in owners if owner == "process"]


def test_who_works_with_messages_and_waits_is_given_them_and_no_process():
    files = [*(PACKAGE / "cluster").glob("*.py"), *(PACKAGE / "cluster").glob("[gm]*/*.py")]
    modules = {file.stem: file.read_text() for file in files if file.stem != "__init__"}
    assert modules.keys() > MAKERS
    found = {name: parts_of_a_process(source) for name, source in modules.items()}
    assert {name for name, used in found.items() if used} == MAKERS
    later = {"self.process.lanes", "self.process.announce"}  # not when a Comm is made
    of_comm = found["comm"] + found["collective"]
    assert {used for used in of_comm if used.startswith("self.")} == later


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("self._process.board.cells", ["self._process.board"]),
        ("comm.process.waiting.lost", ["comm.process.waiting"]),
        ("type(comm)(comm.process, members)", []),
        ("self._endpoint.board", []),
    ],
)
def test_the_check_sees_who_reads_parts_of_a_process(source, found):
    assert parts_of_a_process(source) == found


LONGEST = 80  # lines of a function, its signature and docstring counted


FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def lines_of(function: FUNCTIONS, docstring: bool = True) -> int:
    count = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    if docstring or ast.get_docstring(function) is None:
        return count
    return count - ((first.end_lineno or 0) - first.lineno + 1)


def too_long(source: str, most: int = LONGEST, docstring: bool = True) -> list[tuple[str, int]]:
    """The functions of a module that have more than `most` lines, with their lines."""
    functions = (node for node in ast.walk(parsed(source)) if isinstance(node, FUNCTIONS))
    lines = ((one.name, lines_of(one, docstring)) for one in functions)
    return [(name, count) for name, count in lines if count > most]


def test_every_function_fits_a_screen():
    found = {str(file.relative_to(ROOT)): too_long(file.read_text()) for file in FILES}
    assert {file: functions for file, functions in found.items() if functions} == {}


def test_no_function_of_the_message_path_has_more_than_30_lines_besides_its_docstring():
    cluster = [file for file in FILES if file.is_relative_to(ROOT / "dlviz" / "cluster")]
    found = {file: too_long(file.read_text(), 30, docstring=False) for file in cluster}
    assert len(cluster) > 50 and {file for file in found if found[file]} == set()


def test_a_function_that_does_not_fit_a_screen_is_seen():
    told = 'def f():\n    """One\n    two."""\n    pass\n    pass'
    assert too_long(told, 3, docstring=False) == []
    assert too_long(told, 2, docstring=False) == [("f", 3)]
    body = "\n".join(["        pass"] * (LONGEST - 1))
    assert too_long(f"class A:\n    def fits(self):\n{body}") == []
    assert too_long(f"class A:\n    async def f(self):\n{body}\n        pass") == [("f", 81)]


TWICE = {
    "Attempt",  # one run of a program: a student's in grading, a reader's in a widget
}


def defined_twice(sources: dict[str, str]) -> dict[str, list[str]]:
    """The classes at the top of more than one module, and those modules."""
    found: dict[str, list[str]] = {}
    for module, source in sources.items():
        for node in parsed(source).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(module)
    return {name: modules for name, modules in found.items() if len(modules) > 1}


def test_no_two_classes_have_one_name():
    sources = {str(file.relative_to(ROOT)): file.read_text() for file in FILES}
    found = defined_twice(sources)
    assert {name: modules for name, modules in found.items() if name not in TWICE} == {}
    assert found.keys() >= TWICE  # one that is no longer there twice is no longer allowed to be


def test_two_classes_of_one_name_are_seen():
    one, other = "class Wait:\n    class Inner:\n        pass", "class Wait(int):\n    pass"
    assert defined_twice({"a": one, "b": other}) == {"Wait": ["a", "b"]}
    assert defined_twice({"a": one, "b": "class Waits:\n    pass"}) == {}


def loaded(code: str) -> set[str]:
    """The top-level packages that a fresh Python holds after `code`."""
    report = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    run = [sys.executable, "-c", f"{code}\n{report}"]
    return set(subprocess.run(run, check=True, capture_output=True, text=True).stdout.split())


def test_importing_dlviz_loads_nothing_heavy():
    found = loaded("import dlviz; dlviz.__version__; dir(dlviz)")
    assert "dlviz" in found and not found & (HEAVY | {"numpy"})


def test_views_simulator_and_explorers_never_load_torch():
    there = [name for name in TORCH_FREE if {PACKAGE / name, PACKAGE / f"{name}.py"} & present()]
    found = loaded("\n".join(f"import dlviz.{name}" for name in there))
    assert "torch" not in found


def test_leaves_load_no_package_at_all():
    there = [name for name in ("schedules", "patterns", "machine") if PACKAGE / name in present()]
    assert not loaded("\n".join(f"import dlviz.{name}" for name in there)) & (HEAVY | {"numpy"})


def present() -> set[Path]:
    return {PACKAGE / layer(file) for file in FILES} | set(FILES)


def test_public_names_are_those_of_their_modules():
    code = (
        "import dlviz, dlviz.cluster, dlviz.trace\n"
        "assert dlviz.launch is dlviz.cluster.launch and dlviz.Trace is dlviz.trace.Trace\n"
        "missing = [name for name in dlviz.__all__ if not hasattr(dlviz, name)]\n"
        "assert not missing, missing"
    )
    loaded(code)


def test_an_unknown_name_is_an_attribute_error():
    import dlviz

    with pytest.raises(AttributeError, match="module 'dlviz' has no attribute 'lunch'"):
        _ = dlviz.lunch

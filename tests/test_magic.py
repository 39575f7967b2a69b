"""`%%ranks N` in IPython and in a real kernel: what a cell gets and leaves, and what goes wrong."""

from __future__ import annotations

import ast
import textwrap

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient
from nbformat import v4
from traitlets.config import Config

from dlviz.magic import names_used


class Notebook:
    """IPython without a kernel: cells are run one after the other."""

    def __init__(self, home, capsys):
        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "nocolor"
        self.shell = InteractiveShell.instance(config=config, ipython_dir=str(home))
        self.capsys = capsys
        self.run("%load_ext dlviz")

    def run(self, cell: str) -> str:
        """Run a cell that works; what it printed."""
        done = self.shell.run_cell(textwrap.dedent(cell), store_history=True)
        out, err = self.capsys.readouterr()
        assert done.success, out + err
        return out

    def fail(self, cell: str) -> str:
        """Run a cell that fails; what the reader sees."""
        done = self.shell.run_cell(textwrap.dedent(cell), store_history=True)
        out, err = self.capsys.readouterr()
        assert not done.success
        return out + err

    def __getitem__(self, name: str):
        return self.shell.user_ns[name]


@pytest.fixture
def notebook(tmp_path, capsys):
    yield Notebook(tmp_path, capsys)
    InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("x = a + b.c", {"a", "b"}),
        ("x = 1\nx + y", {"y"}),
        ("x = x + 1", {"x"}),
        ("x += 1", {"x"}),
        ("if a:\n    x = 1\nx", {"a", "x"}),
        ("def f(p, q=d):\n    r = p + g\n    return lambda s: r + s + h", {"d", "g", "h"}),
        ("class A(B):\n    y = z\n    def m(self):\n        return w", {"B", "z", "w"}),
        ("[i * k for i in v]", {"k", "v"}),
        ("import os.path, json as j\nos.sep, j.dumps(e)", {"e"}),
        ("f'{a:{b}}'", {"a", "b"}),
        ("def f():\n    global n\n    n += 1", {"n"}),
        ("print(len(t))", {"print", "len", "t"}),
    ],
)
def test_the_names_that_a_cell_needs_from_outside(cell, names):
    assert names_used(ast.parse(cell).body) == names


def test_a_cell_runs_on_every_rank_with_the_notebooks_variables(notebook):
    notebook.run("""
        import math
        import threading
        import torch
        lock = threading.Lock()          # cannot be sent, and is not used
        scale, sum = 2, 10               # a name of Python's own may be the notebook's
        def area(r):
            return math.floor(scale * r)
        class Shape:
            sides = scale
    """)
    printed = notebook.run("""
        %%ranks 3
        scale = scale + comm.rank        # read, then assigned: on this rank alone
        total = torch.tensor([area(10), Shape().sides, sum])
        comm.all_reduce(total)
        print("scale", scale)
        total.tolist()
    """)
    run = notebook["run"]
    assert run.results == [[20 + 30 + 40, 6, 30]] * 3
    assert sorted(printed.splitlines()) == [f"[rank {r}] scale {2 + r}" for r in range(3)]
    assert run.output == [f"scale {2 + r}\n" for r in range(3)]
    assert notebook["scale"] == 2 and "total" not in notebook.shell.user_ns


def test_what_ipython_put_into_the_notebook_stays_there(notebook):
    notebook.run("%%ranks 1\nif comm.size > 1:\n    exit()\nopen.__module__")
    assert notebook["run"].results == [open.__module__]


def test_a_cell_that_ends_in_a_statement_has_no_result(notebook):
    notebook.run("%%ranks 2\nx = comm.rank")
    assert notebook["run"].results == [None, None]


@pytest.mark.filterwarnings("ignore:the run :RuntimeWarning")  # late: other work disturbed it
def test_the_options_reach_the_run(notebook):
    notebook.run("n = 2")
    notebook.run("%%ranks {n} --paced --device cpu\nwith comm.compute('forward'):\n    pass")
    meta = notebook["run"].trace.meta
    assert meta["clock"] == "paced" and meta["ranks"] == 2
    shown = notebook.fail("%%ranks 1 --timeout 0.5\nwhile True:\n    pass")
    assert shown.startswith("RunTimeout: the run took longer than timeout=0.5 s")


def test_spans_have_the_cells_own_lines(notebook):
    notebook.run("%%ranks 1\n\nwith comm.span('step'):\n    pass")
    (where,) = notebook["run"].trace.only(kind="step").spans.where
    assert where.rpartition(":")[2] == "3"


def test_a_traceback_shows_the_cells_own_lines_and_run_stays(notebook):
    notebook.run("%%ranks 1\n'stays'")
    shown = notebook.fail("""
        %%ranks 2
        def half(x):
            return 1 / x

        half(comm.rank)
    """)
    assert shown.startswith("RankError: rank 0 raised ZeroDivisionError: division by zero")
    lines = [line.strip() for line in shown.splitlines()]
    for number, text in (1, "%%ranks 2"), (5, "half(comm.rank)"), (3, "return 1 / x"):
        at = next(i for i, line in enumerate(lines) if f", line {number}, in " in line)
        assert lines[at + 1] == text
    assert "magic.py" not in shown
    assert notebook["run"].results == ["stays"]


def test_a_deadlock_names_the_cells_own_line_and_the_next_cell_works(notebook):
    notebook.run("import torch")
    shown = notebook.fail("""
        %%ranks 2
        t = torch.ones(1)
        comm.recv(t, 1 - comm.rank)
    """)
    assert shown.startswith("DeadlockError: deadlock: no rank can go on")
    assert shown.count("line 3: comm.recv(t, 1 - comm.rank)") == 2
    assert "run" not in notebook.shell.user_ns
    notebook.run("%%ranks 2\ncomm.size")
    assert notebook["run"].results == [2, 2]


@pytest.mark.parametrize(
    ("cell", "line", "says"),
    [
        ("%%ranks 2\nx = 1\ny = (2\nz = 3", "y = (2", "SyntaxError: '(' was never closed"),
        ("%%ranks 2\n\nreturn 3", "return 3", "SyntaxError: 'return' outside function"),
        ("%%ranks 2\nprint(n)\nglobal n", "global n", "SyntaxError: name 'n' is used prior to"),
    ],
)
def test_a_syntax_error_points_at_the_cells_line(notebook, cell, line, says):
    shown = notebook.fail(cell).rstrip().splitlines()
    number = cell.splitlines().index(line) + 1
    assert shown[0].endswith(f"line {number}") and shown[0].strip().startswith("Cell In[")
    assert shown[1].strip() == line and shown[-1].startswith(says)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "%%ranks needs a number of ranks: write %%ranks 4, say."),
        ("four", "'four' is not a number of ranks; write a whole number"),
        ("2.5", "'2.5' is not a number of ranks; write a whole number"),
        ("0", "ranks=0 is no number of ranks: use a whole number from 1 up."),
        ("-1", "ranks=-1 is no number of ranks"),
        ("0 --paced", "ranks=0"),
        ("99999", "ranks=99999 are more than this machine can hold"),
        ("2 --timeout 0", "timeout=0.0 is no time to wait"),
        ("2 --timeout soon", "argument --timeout: invalid float value: 'soon'"),
        ("2 --device abacus", "device='abacus' is not known: use 'auto', 'cpu' or 'cuda'."),
        ("2 --speed 3", "unrecognized arguments: --speed 3"),
    ],
)
def test_a_bad_line_gets_one_sentence(notebook, line, says):
    shown = notebook.fail(f"%%ranks {line}\n1")
    assert shown.startswith("UsageError: ") and says in shown
    assert len(shown.strip().splitlines()) == 1
    assert "run" not in notebook.shell.user_ns


@pytest.mark.parametrize(
    ("cell", "name"), [("lock", "lock"), ("f = lambda: lock", "lock"), ("locked(1)", "locked")]
)
def test_a_variable_that_cannot_be_pickled_is_named(notebook, cell, name):
    notebook.run("""
        import threading
        lock = threading.Lock()
        fine = [1]
        def locked(x):
            with lock:
                return x
    """)
    shown = notebook.fail(f"%%ranks 2\nfine\n{cell}")
    assert shown.startswith(f"UsageError: the notebook's variable '{name}', which the cell uses, ")
    assert len(shown.strip().splitlines()) == 1
    notebook.run("%%ranks 2\nlock = fine\nlock")
    assert notebook["run"].results == [[1], [1]]


CELLS = [
    "%load_ext dlviz\nimport dlviz\nimport torch\nscale = 2.0",
    """
def worker(comm):
    t = torch.full((1,), comm.rank * scale)
    comm.all_reduce(t)
    print("sum", t.item())
    return t.item()

run = dlviz.launch(worker, ranks=3)
run.results""",
    "%%ranks 3\nprint('scale', scale)\nscale * comm.rank",
    "print(run.results)",
    "%%ranks 3\nt = torch.ones(1)\ncomm.recv(t, (comm.rank + 1) % comm.size)",
    "%%ranks 3\ncomm.barrier()\ncomm.rank",
    "print(run.results, run.trace)",
]


@pytest.mark.slow
def test_a_notebook_in_a_real_kernel():
    cells = [v4.new_code_cell(cell.strip()) for cell in CELLS]
    notebook = v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=60, kernel_name="python3", allow_errors=True).execute()
    nbformat.validate(notebook)
    texts = ["".join(o.get("text", "") for o in cell.outputs) for cell in notebook.cells]
    results = [o.data["text/plain"] for o in cells[1].outputs if o.output_type == "execute_result"]

    assert texts[0] == "" and results == ["[6.0, 6.0, 6.0]"]
    assert sorted(texts[1].splitlines()) == [f"[rank {r}] sum 6.0" for r in range(3)]
    assert sorted(texts[2].splitlines()) == [f"[rank {r}] scale 2.0" for r in range(3)]
    assert texts[3] == "[0.0, 2.0, 4.0]\n"
    (error,) = cells[4].outputs
    assert error.ename == "DeadlockError"
    shown = "\n".join(error.traceback)
    assert shown.count("line 3: comm.recv(t, (comm.rank + 1) % comm.size)") == 3
    assert "cycle: rank 0 waits for rank 1" in shown
    assert cells[5].outputs == []
    assert texts[6].startswith("[0, 1, 2] Trace(3 ranks, ")

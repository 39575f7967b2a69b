"""What a run warns of: at once in a script, in one line after the cell in a notebook."""

from __future__ import annotations

import textwrap
import warnings

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from dlviz.cluster.parent.warn import late, warn
from dlviz.trace import Trace


def ran(worst: float, *, overruns: int = 0, **others) -> Trace:
    """The Trace of a paced run that was `worst` seconds late."""
    pace = {
        "clock": "paced",
        "tolerance": 0.005,
        "lateness": {"worst": worst, "median": 0.0},
        "operations": 80,
        "overruns": overruns,
    }
    return Trace(meta={**pace, "warning": late(pace), **others})


@pytest.fixture
def run_cell(tmp_path, capsys):
    """Runs a cell of IPython in which `ran` and `warn` are known; what it wrote to stderr."""
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config, ipython_dir=str(tmp_path))
    shell.user_ns.update(ran=ran, warn=warn, Trace=Trace, warnings=warnings)

    def run(cell: str) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("default", RuntimeWarning)  # as outside of these tests
            shell.run_cell(textwrap.dedent(cell))
        return capsys.readouterr().err

    yield run
    InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        (ran(0.005), ""),
        (
            ran(0.101),
            "the run was up to 101 ms late: other programs slowed it, so its times are not "
            "reliable; close them and run it again, or give the machine more time: a larger step, "
            "or fewer flops where it has none.",
        ),
        (
            ran(0.101, overruns=5),
            "the run could not keep its pace: the math of 5 of 80 operations took longer than the "
            "machine says, so its times are not reliable; give the machine more time: a larger "
            "step, or fewer flops where it has none, or use fewer ranks.",
        ),
        (ran(0.0, overruns=4), ""),
    ],
)
def test_a_trace_says_whether_its_run_was_late_and_why(trace, words):
    assert trace.meta["warning"] == words


def test_in_a_script_each_late_run_warns_at_once():
    def launched(trace):  # as `launch` calls it
        warn(trace)

    with pytest.warns(RuntimeWarning, match="up to 101 ms late") as caught:
        launched(ran(0.101))
    assert [one.filename for one in caught] == [__file__]
    launched(ran(0.001))  # and one that was not late is silent: a warning is an error here


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("warn(ran(0.001))", ""),
        (
            "for worst in (0.02, 0.23, 0.03, 0.006, 0.05, 0.0): warn(ran(worst))",
            "5 of 6 runs were late (up to 230 ms): other programs slowed them; their times are not "
            "reliable. Close other programs and run the cell again.",
        ),
        (
            "for worst in (0.001, 0.23, 0.0): warn(ran(worst))",
            "1 of 3 runs was late (up to 230 ms): other programs slowed it; its times are not "
            "reliable. Close other programs and run the cell again.",
        ),
        (
            "warn(ran(0.23))",
            "The run was late (up to 230 ms): other programs slowed it; its times are not "
            "reliable. Close other programs and run the cell again.",
        ),
        (
            "warn(ran(0.02, overruns=9)); warn(ran(0.01)); warn(Trace(meta={'clock': 'wall'}))",
            "2 of 2 runs were late (up to 20 ms): other programs slowed them and their math took "
            "longer than the machine says; their times are not reliable. Close other programs and "
            "run the cell again, or give the machine more time: a larger step, or fewer flops "
            "where it has none.",
        ),
        (
            "warn(ran(0.02)); 1 / 0",
            "The run was late (up to 20 ms): other programs slowed it; its times are not "
            "reliable. Close other programs and run the cell again.",
        ),
    ],
)
def test_a_cell_tells_of_all_its_late_runs_in_one_line(run_cell, cell, line):
    assert run_cell(cell).splitlines() == [line] * bool(line)
    assert run_cell("pass") == "", "and the next cell has forgotten them"


def test_a_message_that_nobody_received_is_told_after_the_cell_too(run_cell):
    told = run_cell(
        """
        message = {"src": [0], "dst": [1], "received": [float("nan")]}
        for _ in range(2):
            warn(Trace(messages=message, meta={"outcome": "unreceived"}))
        """
    )
    assert told == "rank 0 sent rank 1 a message that it never received\n"


def test_what_a_filter_hides_is_not_told_after_the_cell_either(run_cell):
    hidden = "with warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n    "
    assert run_cell(f"{hidden}warn(ran(0.2))") == ""


def test_outside_of_a_cell_a_notebook_is_warned_at_once(run_cell):
    assert run_cell("pass") == ""
    with pytest.warns(RuntimeWarning, match="101 ms late"):  # a widget's button starts a run
        warn(ran(0.101))
    assert run_cell("pass") == ""

"""What a run warns of: at once in a script, in one line after the cell in a notebook."""

from __future__ import annotations

import textwrap
import warnings

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from dlviz.cluster.parent.warn import late, warn
from dlviz.trace import Trace


def ran(worst: float, *, overruns: int = 0, other=0.6, ranks=2, **more) -> Trace:
    """The Trace of a paced run that was `worst` seconds late, on two processors, of which other
    programs had the share `other`."""
    pace = {
        "ranks": ranks,
        "processors": 2,
        "others": other,
        "clock": "paced",
        "tolerance": 0.005,
        "lateness": {"worst": worst, "median": 0.0},
        "operations": 80,
        "overruns": overruns,
    }
    return Trace(meta={**pace, "warning": late(pace), **more})


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
            "the run was up to 101 ms late: other programs had 60 % of the processors, so its "
            "times are not reliable; close other programs and run it again, or give the machine "
            "more time: a larger step, or fewer flops where it has none.",
        ),
        (
            ran(0.101, other=0.05, ranks=8),
            "the run was up to 101 ms late: 8 ranks share 2 processors, so its times are not "
            "reliable; run it again, or take fewer ranks, or give the machine more time: a larger "
            "step, or fewer flops where it has none.",
        ),
        (
            ran(0.101, other=None),
            "the run was up to 101 ms late: the system woke ranks late, so its times are not "
            "reliable; run it again, or give the machine more time: a larger step, or fewer flops "
            "where it has none.",
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
            "5 of 6 runs were late (up to 230 ms): other programs had 60 % of the processors; "
            "their times are not reliable. Close other programs and run it again.",
        ),
        (
            "for worst in (0.001, 0.23, 0.0): warn(ran(worst, other=0.02, ranks=8))",
            "1 of 3 runs was late (up to 230 ms): 8 ranks share 2 processors; its times are not "
            "reliable. Run it again, or take fewer ranks.",
        ),
        (
            "warn(ran(0.02, other=0.2)); warn(ran(0.01, other=0.4)); warn(ran(0.01, overruns=9))",
            "3 of 3 runs were late (up to 20 ms): other programs had 40 % of the processors and "
            "their math took longer than the machine says; their times are not reliable. Close "
            "other programs and run it again, or give the machine more time: a larger step, or "
            "fewer flops where it has none.",
        ),
        (
            "warn(ran(0.02, other=0.0)); 1 / 0",
            "The run was late (up to 20 ms): the system woke ranks late; its times are not "
            "reliable. Run it again.",
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

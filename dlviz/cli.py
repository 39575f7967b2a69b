"""The command `dlviz`: run a strategy and keep its trace, show a trace, put a class's reports on a
page, say what works here.

    dlviz run ddp --ranks 4 --data digits --out trace.json.gz
    dlviz show trace.json.gz
    dlviz report handed-in/ --out class.html
    dlviz doctor

Exit code 0: done. 1: the run failed, or `doctor` found that something here cannot work. 2: an
argument or a file that cannot be used, said in one sentence. Nothing heavy is imported before it is
needed: `--help` loads the standard library alone, `show` never loads torch.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dlviz import __version__

if TYPE_CHECKING:
    from dlviz.cluster import Run
    from dlviz.trace import Trace

STRATEGIES = {
    "ddp": "data parallel: buckets of gradients are all-reduced while backward goes on",
    "naive": "data parallel: each gradient is all-reduced after backward",
}
BATCH = 64  # images a step, shared by the ranks
BUCKET_BYTES = 2**16  # the model is small: three buckets, not one
ENDINGS = (".json.gz", ".json")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (by default those of the process); its exit code."""
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as leaving:
        return int(leaving.code or 0)
    try:
        return options.command(options)
    except Unusable as error:
        print(f"dlviz: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"dlviz: {error.name} is not installed: see `dlviz doctor`.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("dlviz: interrupted", file=sys.stderr)
        return 130


class Unusable(Exception):
    """An argument or a file that cannot be used: a sentence for the reader."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> Parser:
    parser = Parser(
        prog="dlviz",
        description="See distributed training happen: run it, keep its trace, look at it.",
        epilog="A trace file is Chrome Trace Event JSON; https://ui.perfetto.dev opens it as well.",
    )
    parser.add_argument("--version", action="version", version=f"dlviz {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    run = commands.add_parser(
        "run",
        help="train on real ranks and keep the trace",
        description="Train a small network on real ranks, print where the time went and how well "
        "it learnt, and keep the trace.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{name:6} {what}" for name, what in STRATEGIES.items()),
    )
    run.add_argument("strategy", choices=STRATEGIES, metavar="STRATEGY", help="ddp or naive")
    run.add_argument("--ranks", type=_whole, default=4, help="processes to train on (4)")
    run.add_argument("--data", choices=["digits"], default="digits", help="digits")
    run.add_argument("--steps", type=_whole, default=50, help=f"of {BATCH} images each (50)")
    run.add_argument("--out", type=Path, metavar="FILE", help="keep the trace: .json.gz or .json")
    run.add_argument(
        "--paced", action="store_true", help="on a classroom machine: each forward takes 5 ms"
    )
    run.add_argument("--device", default="auto", help="auto, cpu or cuda (auto)")
    run.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="seconds for the whole run (600)"
    )
    run.set_defaults(command=run_command)

    show = commands.add_parser(
        "show",
        help="draw the timeline of a trace as a page",
        description="Draw the timeline of a trace as one HTML page, which needs no network, and "
        "open it in a browser.",
    )
    show.add_argument("trace", type=Path, metavar="TRACE", help="a file that `dlviz run` wrote")
    show.add_argument("--out", type=Path, metavar="PAGE", help="the page (TRACE with .html)")
    show.add_argument("--no-open", action="store_true", help="write the page and leave it at that")
    show.set_defaults(command=show_command)

    report = commands.add_parser(
        "report",
        help="put what a class handed in on one page",
        description="Read the reports that students handed in, dlviz-report-NAME.json, from FOLDER "
        "and its subfolders, and write one page: for each question the guesses beside what was "
        "measured, and the misconceptions behind them. Open it in any browser.",
    )
    report.add_argument("folder", type=Path, metavar="FOLDER", help="where the reports lie")
    report.add_argument("--out", type=Path, metavar="PAGE", help="the page (FOLDER/class.html)")
    report.set_defaults(command=report_command)

    doctor = commands.add_parser(
        "doctor",
        help="say what works on this machine, and why the rest does not",
        description="Look at versions, cores, GPUs, browser and shared memory, start four ranks, "
        "and say what works on this machine and why the rest does not. Exit code 1: something "
        "that dlviz needs is missing.",
    )
    doctor.set_defaults(command=doctor_command)
    return parser


def _whole(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 up")
    return number


# -- dlviz run -----------------------------------------------------------------------------------
def run_command(options: argparse.Namespace) -> int:
    """Train, print the summary, keep the trace."""
    if options.out is not None:
        _check_target(options.out, ENDINGS)
    from dlviz import RunError, launch
    from dlviz.datasets import batches, digits
    from dlviz.machine import classroom
    from dlviz.models import MLP
    from dlviz.parallel import data

    try:
        with _warnings_in_words():
            run = launch(
                data.train,
                options.ranks,
                machine=classroom(options.ranks) if options.paced else None,
                device=options.device,
                timeout=options.timeout,
                args=(MLP(), list(batches(*digits("train"), batch=BATCH, steps=options.steps))),
                kwargs={"way": options.strategy, "bucket_bytes": BUCKET_BYTES},
            )
    except ValueError as error:
        raise Unusable(str(error)) from error
    except RunError as error:
        print(f"dlviz: {type(error).__name__}: {error}", file=sys.stderr)
        if options.out is not None and error.trace is not None:
            _write(options.out, error.trace.save)
            print(f"dlviz: the trace until then is in {options.out}", file=sys.stderr)
        return 1
    print(_summary(options, run))
    if options.out is not None:
        _write(options.out, run.trace.save)
        print(f"{options.out}  {_counts(run.trace)}; `dlviz show {options.out}` draws it")
    return 0


def _summary(options: argparse.Namespace, run: Run) -> str:
    """What the run came to, as text: a line on it, a table by rank, loss and accuracy."""
    from dlviz import metrics
    from dlviz.datasets import digits
    from dlviz.models import MLP, accuracy

    clock = "wall clock" if run.trace.meta["clock"] == "wall" else "device clock, classroom machine"
    numbered = set(run.trace.spans.step.tolist()) - {-1}
    shares = metrics.breakdown(run.trace.only(step=numbered))  # without what went before step 0
    columns: dict[str, list[str]] = {
        "rank": [str(rank) for rank in run.trace.ranks],
        "compute": _milliseconds(shares["compute"] + shares["update"]),
        "exposed communication": _milliseconds(shares["communication"]),
        "idle": _milliseconds(shares["idle"] + shares["other"]),
        "sent": [_size(sent) for sent in metrics.bytes_sent(run.trace)],
    }
    model, losses = MLP(), run.results[0]["losses"]
    model.load_state_dict(run.results[0]["state"])
    right = accuracy(model, *digits("test"))
    return "\n".join(
        [
            f"{options.strategy} on {_plural(options.ranks, 'rank')}, {options.data}, "
            f"{_plural(options.steps, 'step')} of {BATCH} images: {run.seconds:.2f} s "
            f"(below, the steps by the {clock})",
            "",
            *_table(columns),
            "",
            f"loss      {losses[0]:.3f} in the first step, {losses[-1]:.3f} in the last",
            f"accuracy  {right:.1%} of the test images",
        ]
    )


def _table(columns: dict[str, list[str]]) -> Iterator[str]:
    width = {name: max(map(len, [name, *cells])) for name, cells in columns.items()}
    for row in [tuple(columns), *zip(*columns.values(), strict=True)]:
        yield "   ".join(f"{cell:>{width[name]}}" for name, cell in zip(columns, row, strict=True))


def _milliseconds(seconds: Any) -> list[str]:
    return [f"{1e3 * value:.1f} ms" for value in seconds]


def _size(nbytes: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes:.0f} bytes"


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _counts(trace: Trace) -> str:
    return f"{_plural(len(trace.spans), 'span')}, {_plural(len(trace.messages), 'message')}"


@contextmanager
def _warnings_in_words() -> Iterator[None]:
    """A warning of the run (a machine that could not be kept up with) as a line on stderr."""

    def show(message: Any, category: Any, *place: Any) -> None:
        print(f"dlviz: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = show
        yield


# -- dlviz show ----------------------------------------------------------------------------------
def show_command(options: argparse.Namespace) -> int:
    """Write the timeline as a page, and open it where there is a browser to open it in."""
    from dlviz.doctor import can_open
    from dlviz.trace import Trace
    from dlviz.widgets import Timeline

    try:
        trace = Trace.load(options.trace)
    except OSError as error:
        raise Unusable(f"{options.trace} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise Unusable(str(error)) from error
    page = options.out or options.trace.with_name(f"{_stem(options.trace)}.html")
    _check_target(page, (".html",))
    _write(page, Timeline(trace, title=options.trace.name).save_html)
    size = _size(page.stat().st_size)
    print(f"{page}  the timeline of {options.trace} ({_counts(trace)}, {size})")
    if options.no_open:
        return 0
    if not can_open() or not webbrowser.open(page.resolve().as_uri()):
        print("There is no display here to open it on: open the page in a browser of your own.")
    return 0


def _stem(path: Path) -> str:
    ending = next(filter(path.name.endswith, ENDINGS), path.suffix)
    return path.name.removesuffix(ending)


def _check_target(path: Path, endings: tuple[str, ...]) -> None:
    """Refuse a file that cannot be written before the work is done that it is to hold."""
    if not path.name.endswith(endings):
        raise Unusable(f"--out {path} has the wrong ending: use {' or '.join(endings)}.")
    if not path.parent.is_dir():
        raise Unusable(f"{path} cannot be written: there is no folder {path.parent}.")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise Unusable(f"{path} cannot be written: choose another file with --out.")


def _write(path: Path, write: Callable[[Path], Any]) -> None:
    try:
        write(path)
    except OSError as error:
        raise Unusable(f"{path} cannot be written: {error.strerror}.") from error


# -- dlviz report --------------------------------------------------------------------------------
def report_command(options: argparse.Namespace) -> int:
    """Write a class's reports as a page."""
    if not options.folder.is_dir():
        raise Unusable(f"{options.folder} is no folder.")
    page = options.out or options.folder / "class.html"
    _check_target(page, (".html",))
    from dlviz.grading import class_report

    try:
        text = class_report(options.folder)
    except ValueError as error:
        raise Unusable(str(error)) from error
    _write(page, lambda path: path.write_text(text, encoding="utf-8"))
    print(f"{page}  the class's predictions ({_size(page.stat().st_size)}); open it in a browser")
    return 0


# -- dlviz doctor --------------------------------------------------------------------------------
def doctor_command(options: argparse.Namespace) -> int:
    """Print what is here and what works."""
    from dlviz.doctor import examine

    return examine()

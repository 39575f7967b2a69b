"""The command `dlviz`: run a strategy and save its trace, show a trace, show progress in the labs,
put a class's reports on a page, check this machine.

    dlviz run ddp --ranks 4 --data digits --out trace.json.gz
    dlviz run federated --ranks 5
    dlviz show trace.json.gz
    dlviz progress labs/
    dlviz report handed-in/ --out class.html
    dlviz doctor

Exit code 0: done. 1: the run failed, or `doctor` found something that cannot work here. 2: an
unusable argument or file, explained in one sentence. Heavy imports wait until they are needed:
`--help` loads only the standard library, `show` never loads torch.
"""

from __future__ import annotations

import argparse
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from dlviz import __version__
from dlviz.cli import federated
from dlviz.cli.run import FEDERATED, add_run, own_options
from dlviz.cli.words import (
    ENDINGS,
    Parser,
    Unusable,
    check_target,
    complain,
    counts,
    size_of,
    write,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (default: the process's). Returns its exit code."""
    began = perf_counter()
    try:
        options = _parse(arguments)
        options.began = began
        return options.command(options)
    except SystemExit as leaving:
        return int(leaving.code or 0)
    except Unusable as error:
        complain(str(error))
        return 2
    except ModuleNotFoundError as error:
        complain(f"{error.name} is not installed: see `dlviz doctor`.")
        return 1
    except KeyboardInterrupt:
        complain("interrupted")
        return 130


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if getattr(options, "help", False):
        rest = ["--help"]
    if "strategy" in options and options.strategy == FEDERATED:
        options.own, options.command = federated.own_options(rest), federated.run_command
    elif "strategy" in options:
        options.own = own_options(options.strategy, rest)
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


def _parser() -> Parser:
    parser = Parser(
        prog="dlviz",
        description="See distributed training happen: run it, save its trace, look at it.",
        epilog="A trace file is Chrome Trace Event JSON; https://ui.perfetto.dev opens it as well.",
    )
    parser.add_argument("--version", action="version", version=f"dlviz {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    add_run(commands)

    show = commands.add_parser(
        "show",
        help="draw the timeline of a trace as a page",
        description="Draw the timeline of a trace as one HTML page that needs no network, and open "
        "it in a browser.",
    )
    show.add_argument("trace", type=Path, metavar="TRACE", help="a file that `dlviz run` wrote")
    show.add_argument("--out", type=Path, metavar="PAGE", help="the page (TRACE with .html)")
    show.add_argument("--no-open", action="store_true", help="write the page without opening it")
    show.set_defaults(command=show_command)

    report = commands.add_parser(
        "report",
        help="put what a class handed in on one page",
        description="Read the reports that students handed in, dlviz-report-NAME.json, from FOLDER "
        "and its subfolders, and write one page: for each question the guesses beside what was "
        "measured, and the misconceptions behind them.",
    )
    report.add_argument("folder", type=Path, metavar="FOLDER", help="where the reports lie")
    report.add_argument("--out", type=Path, metavar="PAGE", help="the page (FOLDER/class.html)")
    report.set_defaults(command=report_command)

    progress = commands.add_parser(
        "progress",
        help="show how far you are: labs, predictions, points",
        description="Show for each lab and assignment in FOLDER and its subfolders what was "
        "predicted, how far off it was, and the points of its checks.",
    )
    progress.add_argument(
        "folder", type=Path, metavar="FOLDER", nargs="?", default=Path(), help="the labs (here)"
    )
    progress.set_defaults(command=progress_command)

    doctor = commands.add_parser(
        "doctor",
        help="say what works on this machine, and why the rest does not",
        description="Look at versions, cores, GPUs, browser and shared memory, start four ranks, "
        "and say what works on this machine and why the rest does not. Exit code 1: something "
        "that dlviz needs is missing.",
    )
    doctor.set_defaults(command=doctor_command)
    return parser


# -- dlviz show ----------------------------------------------------------------------------------
def show_command(options: argparse.Namespace) -> int:
    """Write the timeline as a page, and open it if there is a browser."""
    from dlviz.doctor import can_open
    from dlviz.trace import Trace
    from dlviz.widgets import Timeline

    page = options.out
    if page is not None:
        check_target(page, (".html",))
    try:
        trace = Trace.load(options.trace)
    except OSError as error:
        raise Unusable(f"{options.trace} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise Unusable(str(error)) from error
    if page is None:
        page = options.trace.with_name(f"{_stem(options.trace)}.html")
        check_target(page, (".html",))
    write(page, Timeline(trace, title=options.trace.name).save_html)
    size = size_of(page.stat().st_size)
    print(f"{page}  the timeline of {options.trace} ({counts(trace)}, {size})")
    if options.no_open:
        return 0
    if not can_open() or not webbrowser.open(page.resolve().as_uri()):
        print("There is no display here: open the page in a browser of your own.")
    return 0


def _stem(path: Path) -> str:
    ending = next(filter(path.name.endswith, ENDINGS), path.suffix)
    return path.name.removesuffix(ending)


# -- dlviz report --------------------------------------------------------------------------------
def report_command(options: argparse.Namespace) -> int:
    """Write a class's reports as a page."""
    if not options.folder.is_dir():
        raise Unusable(f"{options.folder} is not a folder.")
    page = options.out or options.folder / "class.html"
    check_target(page, (".html",))
    from dlviz.grading import class_report

    try:
        text = class_report(options.folder)
    except ValueError as error:
        raise Unusable(str(error)) from error
    write(page, lambda path: path.write_text(text, encoding="utf-8"))
    print(f"{page}  the class's predictions ({size_of(page.stat().st_size)}); open it in a browser")
    return 0


# -- dlviz progress ------------------------------------------------------------------------------
def progress_command(options: argparse.Namespace) -> int:
    """Print progress in the labs."""
    from dlviz.grading import progress

    try:
        print(progress(options.folder))
    except ValueError as error:
        raise Unusable(str(error)) from error
    return 0


# -- dlviz doctor --------------------------------------------------------------------------------
def doctor_command(options: argparse.Namespace) -> int:
    """Print what was found here and what works."""
    from dlviz.doctor import examine

    return examine()

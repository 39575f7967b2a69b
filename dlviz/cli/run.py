"""`dlviz run`: train on real ranks by any strategy, summarise the run, save the trace.

No strategy is hard-coded. Their names and descriptions come from `dlviz.parallel.STRATEGIES`. A
keyword argument of a strategy's `train` that is an int, a float or a str becomes an option
(`--bucket-bytes 4000`), a bool one without a value (`--sequence-parallel`); the axes of a mesh
become `--mesh dp=2,pp=2,tp=2`. What `train` returns besides losses and state ends the summary.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

from dlviz.cli.words import (
    ENDINGS,
    Parser,
    Unusable,
    check_target,
    complain,
    counts,
    plural,
    size_of,
    under_torchrun,
    write,
)
from dlviz.parallel import STRATEGIES

if TYPE_CHECKING:
    from torch import nn

    from dlviz.cli.tasks import Task
    from dlviz.cluster import Run, RunError
    from dlviz.trace import Trace

BATCH = 64  # examples a step, shared by the ranks
COMMON = {"losses", "state", "steps", "evaluations"}  # of every Result
OWN = {"bucket_bytes": 2**16}  # for small models: three buckets, not one
PARTS = {"noise_multiplier": "--private", "threshold": "--secure"}  # argument -> its option
KINDS = {"int": int, "float": float, "str": str, "bool": bool}
DATA = {"mlp": "digits", "alexnet": "digits", "lstm": "sentences", "transformer": "sentences"}
CONVOLVED = {"spatial", "channel_filter", "cnn_hybrid"}  # strategies that cut convolutions
MEASURED = {"zero", "offload", *CONVOLVED}  # whose memory is measured, storage by storage
FEDERATED = "federated"  # not a strategy: it has clients and rounds, not batches (federated.py)
FEDERATED_LINE = "rank 0 serves clients that keep their data: --rounds of local training, averaged"
RULES = ("sgd", "decay", "momentum", "nesterov", "adagrad", "rmsprop", "adam")


def add_run(commands: Any) -> None:
    """Add the command."""
    width = max(map(len, STRATEGIES))
    run = commands.add_parser(
        "run",
        help="train on real ranks and save the trace",
        description="Train a small network on real ranks, print where the time went and how well "
        "it learnt, and save the trace.",
        add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(
            [
                *(f"{name:{width}} {line}" for name, line in STRATEGIES.lines.items()),
                f"{FEDERATED:{width}} {FEDERATED_LINE}",
                "",
                "A strategy has options of its own, such as --lr 0.1 --all-reduce tree "
                "--bucket-bytes 4000 of ddp, or",
                "--mesh dp=2,pp=2,tp=2 --schedule zb_h1 of 3d: its axes and how many ranks each "
                "has, neighbours last;",
                "--private 1 --clip 2 and --secure 3 of federated: differential privacy, or secure "
                "aggregation.",
                "`dlviz run STRATEGY --help` shows those of one strategy, with their defaults.",
            ]
        ),
    )
    run.add_argument(
        "strategy",
        choices=[*STRATEGIES, FEDERATED],
        metavar="STRATEGY",
        help="one of those listed below",
    )
    run.add_argument("-h", "--help", action=_Help, help="this; after STRATEGY, its own options")
    run.add_argument(
        "--ranks",
        type=_whole,
        default=int(os.environ["WORLD_SIZE"]) if under_torchrun() else 4,
        help="processes to train on (4; under torchrun as many as it started)",
    )
    run.add_argument(
        "--model",
        choices=DATA,
        help=f"{', '.join(DATA)} (mlp; alexnet where convolutions are cut, on a mesh a "
        "transformer)",
    )
    data = [*dict.fromkeys(DATA.values())]
    run.add_argument("--data", choices=data, help="digits for mlp and alexnet, else sentences")
    run.add_argument(
        "--rule", choices=RULES, default="sgd", metavar="RULE", help=f"{', '.join(RULES)} (sgd)"
    )
    run.add_argument("--steps", type=_whole, default=50, help=f"of {BATCH} examples each (50)")
    run.add_argument("--out", type=Path, metavar="FILE", help="save the trace: .json.gz or .json")
    run.add_argument(
        "--paced", action="store_true", help="on a classroom machine: each forward takes 5 ms"
    )
    run.add_argument(
        "--slow",
        type=_slow,
        action="append",
        default=[],
        metavar="RANK:FACTOR",
        help="paced, and this rank computes FACTOR times as long; may be given for several ranks",
    )
    run.add_argument("--device", default="auto", help="auto, cpu or cuda (auto)")
    run.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="seconds for the whole run (600)"
    )
    run.set_defaults(command=run_command)


def flag(name: str) -> str:
    """The option of a Python argument."""
    return f"--{name.replace('_', '-')}"


class _Help(argparse.Action):
    """Shows the help of the command; after a STRATEGY it leaves that to the strategy's parser."""

    def __init__(self, *names: Any, **options: Any):
        super().__init__(*names, nargs=0, default=False, **options)

    def __call__(self, parser: Any, namespace: Any, *given: Any) -> None:
        namespace.help = True
        if namespace.strategy is None:
            parser.print_help()
            parser.exit()


class Own(NamedTuple):
    """An option of a strategy: its type and its default."""

    kind: type
    default: Any = None

    @property
    def help(self) -> str:
        if self.kind is bool:
            return "on without it" if self.default else "off"
        return "none" if self.default is None else f"{self.default}"

    def flag(self, name: str) -> str:
        """Its option; one that is on has the option that turns it off."""
        return flag(f"no_{name}" if self.kind is bool and self.default else name)


def own_options(strategy: str, rest: Sequence[str]) -> dict[str, Any]:
    """The strategy's own options in the rest of the line."""
    axes = _axes(strategy)
    if not rest and not axes:
        return {}
    own = taken_by(STRATEGIES[strategy])
    here = OWN | {"lr": "by --model and --rule"}
    own |= {name: own[name]._replace(default=here[name]) for name in own.keys() & here}
    given = read_own(strategy, STRATEGIES.lines[strategy], own, rest, axes)
    return given | given.pop("mesh", {})


def read_own(
    name: str, line: str, own: dict[str, Own], rest: Sequence[str], axes: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The `own` options of `name` in the rest of the line, and its mesh."""
    parser = Parser(
        prog=f"dlviz run {name}",
        description=f"{name}: {line}. Its own options, with their defaults; `dlviz run --help` "
        "shows those of all strategies.",
        usage=f"dlviz run {name} [OPTIONS]",
        allow_abbrev=False,
    )
    flags = {
        each.flag(option): (option, each) for option, each in own.items() if option not in axes
    }
    if axes:
        mesh, as_in = partial(_mesh, axes=axes), ",".join(f"{axis}=2" for axis in axes)
        parser.add_argument("--mesh", type=mesh, required=True, help=f"as in {as_in} (required)")
    for option, (dest, each) in flags.items():
        how: Any = {"action": "store_const", "const": not each.default}
        if each.kind is not bool:
            how = {"type": each.kind, "metavar": each.kind.__name__.upper()}
        parser.add_argument(option, dest=dest, default=argparse.SUPPRESS, help=each.help, **how)
    found, unknown = parser.parse_known_args(rest)
    if unknown:
        also = f"its own options are {', '.join(['--mesh', *flags] if axes else flags)}"
        parser.error(f"unrecognized arguments: {' '.join(unknown)} ({also})")
    return vars(found)


def taken_by(train: Callable[..., Any]) -> dict[str, Own]:
    """The keyword arguments of a `train` that a command line can give."""
    found = {}
    for each in inspect.signature(train).parameters.values():
        kind = KINDS.get(str(each.annotation).partition(" | ")[0])
        if each.kind is each.KEYWORD_ONLY and kind is not None:
            found[each.name] = Own(kind, None if each.default is each.empty else each.default)
        elif each.kind is each.VAR_KEYWORD:
            found |= {"clip": Own(float), **_of_options(train, each.name)}
    return found


def _of_options(train: Callable[..., Any], name: str) -> dict[str, Own]:
    """The strategy's own among the `**options` of that name, which those of all are not."""
    from dlviz.models.options import TrainingOptions
    from dlviz.parallel.step.training import Options

    of_these = {key: each for key, each in train.__annotations__.items() if key == name}
    annotation: Any = SimpleNamespace(__annotations__=of_these)
    of_all = Options.__annotations__ | TrainingOptions.__annotations__
    found = {}
    for options in get_args(get_type_hints(annotation, train.__globals__).get(name)):
        hints = get_type_hints(options).items()
        found |= {key: Own(kind) for key, kind in hints if key not in of_all}
    return found


def _axes(strategy: str) -> tuple[str, ...]:
    """The axes of the strategy's mesh; () if it treats all ranks alike."""
    if strategy == FEDERATED:
        return ()
    order = inspect.signature(STRATEGIES[strategy]).parameters.get("order")
    return () if order is None else tuple(order.default)


def _mesh(text: str, axes: tuple[str, ...]) -> dict[str, Any]:
    """The length of each axis (1 if the text does not name it) and the order of the axes."""
    found = re.findall(r"(\w+)=(\d+)", text)
    lengths = {name: int(length) for name, length in found if name in axes}
    if ",".join(f"{name}={length}" for name, length in lengths.items()) != text:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a mesh: give the length of each axis, as in "
            f"{','.join(f'{name}=2' for name in axes)}, the axis whose ranks are neighbours last"
        )
    others = dict.fromkeys((name for name in axes if name not in lengths), 1)
    return {**others, **lengths, "order": (*others, *lengths)}


def _whole(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return number


def _slow(text: str) -> tuple[int, float]:
    found = re.fullmatch(r"(\d+):(\d+\.?\d*)", text)
    if found is None or not float(found[2]):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not RANK:FACTOR: 2:3 makes rank 2 three times as slow"
        )
    return int(found[1]), float(found[2])


def _factors(options: argparse.Namespace) -> list[float] | None:
    """How slow each rank is; None without --slow."""
    factors = [1.0] * options.ranks
    for rank, factor in options.slow:
        if rank >= options.ranks:
            raise Unusable(f"--slow {rank}:{factor:g}: ranks are 0 to {options.ranks - 1} here.")
        factors[rank] = factor
    return factors if options.slow else None


def run_command(options: argparse.Namespace) -> int:
    """Train, print the summary, save the trace."""
    if options.out is not None:
        check_target(options.out, ENDINGS)
    on_mesh = bool(_axes(options.strategy))
    convolved = options.strategy in CONVOLVED
    usual = "transformer" if on_mesh else "alexnet" if convolved else "mlp"
    options.model = options.model or usual
    if on_mesh and options.model != "transformer":
        raise Unusable(f"{options.strategy} trains a transformer: leave out --model.")
    if options.data not in (None, DATA[options.model]):
        raise Unusable(f"--model {options.model} is trained on {DATA[options.model]}.")
    from dlviz.cli.tasks import TASKS

    task = TASKS[options.model]
    train = STRATEGIES[options.strategy]
    known = inspect.signature(train).parameters
    chosen = {"loss": task.loss, "weight": task.weight, "lr": task.rates[options.rule], **OWN}
    chosen = {name: value for name, value in chosen.items() if name in known} | options.own
    model = model_of(task, without_values=on_mesh)
    args = model, task.batches(BATCH, options.steps), options.rule
    run = launched(options, train, args, chosen)
    if run is None:
        return 1
    if run.trace is None:  # a rank of torchrun's other than 0, which reports
        return 0
    report(options, run, _summary(options, task, run, chosen.get("lr")))
    return 0


def measured(train: Callable[..., Any]) -> Callable[..., Any]:
    """`train`, whose result says what the rank's storages are at the peak of a step: the highest
    but for the first, in which the whole model is still there."""

    def watched(comm: Any, model: nn.Module, *args: Any, **options: Any) -> Any:
        from dlviz.cluster import Storages

        with Storages(comm, model) as storages:
            result = train(comm, model, *args, callback=lambda *_: storages.begin_step(), **options)
        most = max(storages.steps[1:] or storages.steps, key=lambda amounts: amounts.total)
        held = (f"{size_of(nbytes)} {kind}" for kind, nbytes in most.by_kind.items() if nbytes)
        result["peak"] = ", ".join(held)
        return result

    return watched


def model_of(task: Task, without_values: bool) -> nn.Module:
    """The model to train. On a mesh it has no values: each rank draws those of its part from the
    model's seed."""
    import torch

    with torch.device("meta" if without_values else "cpu"):
        return task.model()


def launched(
    options: argparse.Namespace, train: Callable[..., Any], args: Any, kwargs: Any, **how: Any
) -> Run | None:
    """Launch `train` as the options say. Prints why and returns None if the run fails."""
    factors = _factors(options)
    from dlviz import RunError, RunTimeout, launch
    from dlviz.machine import classroom

    paced = options.paced or factors is not None
    names = {*vars(options), *taken_by(train)} - {*_axes(options.strategy)}
    try:
        with _warnings_in_words():
            return launch(
                measured(train) if options.strategy in MEASURED else train,
                options.ranks,
                machine=classroom(options.ranks, factors=factors) if paced else None,
                device=options.device,
                timeout=_left(options),
                args=args,
                kwargs=kwargs,
                **how,
            )
    except ValueError as error:
        raise Unusable(as_typed(str(error), names)) from error
    except RunTimeout as error:
        where, limit = str(error).partition("\n\n")[0], f"timeout={options.timeout:g} s"
        return _failed(options, error, as_typed(re.sub(r"timeout=\S+ s", limit, where), names))
    except RunError as error:
        _check_refused(error, names)
        return _failed(options, error, str(error))


def _failed(options: argparse.Namespace, error: RunError, message: str) -> None:
    complain(f"{type(error).__name__}: {message}")
    if options.out is not None and error.trace is not None:
        write(options.out, error.trace.save)
        complain(f"the trace until then is in {options.out}")


def _left(options: argparse.Namespace) -> float:
    """The seconds left for the run: its limit counts from the start of the command."""
    from dlviz import RunTimeout

    left = options.timeout - (perf_counter() - options.began)
    if options.timeout > 0 >= left:
        raise RunTimeout(f"the run took longer than timeout={options.timeout:g} s to prepare")
    return left if options.timeout > 0 else options.timeout


def as_typed(message: str, names: Iterable[str]) -> str:
    """The message with the options of the command line in place of these arguments."""
    for name, option in ({name: flag(name) for name in names} | PARTS).items():
        message = re.sub(rf"\b{name}=('?)([^\s',;:]+)\1", rf"{option} \2", message)
    mesh = re.search(r"\bmesh {(.*?)}", message)
    if mesh is None:
        return message
    lengths = mesh[1].replace("'", "").replace(": ", "=").replace(" ", "")
    return message.replace(mesh[0], f"--mesh {lengths}")


def report(options: argparse.Namespace, run: Run, summary: str) -> None:
    """Print the summary and save the trace."""
    print(summary)
    if options.out is not None:
        write(options.out, run.trace.save)
        print(f"{options.out}  {counts(run.trace)}; `dlviz show {options.out}` draws it")


def _check_refused(error: RunError, names: Iterable[str]) -> None:
    """A ValueError before the first step means an argument that the strategy cannot use."""
    last = (error.traceback or "").strip().rpartition("\n")[2]
    begun = error.trace is not None and (error.trace.spans.step >= 0).any()
    if last.startswith("ValueError: ") and not begun:
        raise Unusable(as_typed(last.removeprefix("ValueError: "), names)) from error


def _summary(options: argparse.Namespace, task: Task, run: Run, rate: float | None) -> str:
    """The results as text: a headline, a table by rank, how well it learnt."""
    from dlviz import metrics
    from dlviz.analysis.axes import axes

    result, columns = run.results[0], by_rank(run.trace)
    for name, axis in axes(run.trace).items():
        columns[f"along {name}"] = [size_of(sent) for sent in axis.sent]
    if len(run.trace.memory):
        columns["held"] = [size_of(most) for most in metrics.peak_memory(run.trace)]
    state: dict[str, Any] = {}
    for each in reversed(run.results):  # a rank may hold only a part of the model
        state |= each["state"]
    summary = {
        "rule": options.rule + ("" if rate is None else f" at a rate of {rate:g}"),
        "step": f"{1e3 * metrics.seconds_per_step(run.trace):.1f} ms in the median",
        **_coded(run.trace),
        **task.summary(result["losses"], state),
        **{name: value for name, value in result.items() if name not in COMMON},
    }
    head = (
        f"{options.strategy} on {plural(options.ranks, 'rank')}, {DATA[options.model]}, "
        f"{plural(options.steps, 'step')} of {BATCH} {task.examples}: {run.seconds:.2f} s (below, "
        f"the steps by the {clock_of(run.trace)})"
    )
    return with_table(head, columns, summary)


def _coded(trace: Trace) -> dict[str, str]:
    """What was coded, a rank and step, if anything was."""
    spans = trace.only(kind="compress").spans
    steps = len(trace.ranks) * len(set(spans.step.tolist()) - {-1})
    made = [row for row in spans if row.name == "encode"]
    if not made or not steps:
        return {}
    raw, coded = sum(row.fields["raw"] for row in made), sum(row.nbytes for row in made)
    seconds = sum(row.end - row.start for row in spans)
    sizes = f"{size_of(raw / steps)} to {size_of(coded / steps)}"
    return {"coded": f"{sizes} ({raw / coded:.1f} times less) in {1e3 * seconds / steps:.1f} ms"}


def with_table(head: str, columns: dict[str, list[str]], summary: dict[str, Any]) -> str:
    """A headline, a table, and named lines."""
    width = max(map(len, summary))
    lines = (f"{name.replace('_', ' '):{width}}  {value}" for name, value in summary.items())
    return "\n".join([head, "", *_table(columns), "", *lines])


def clock_of(trace: Trace) -> str:
    """The clock of a trace's times."""
    meta = trace.meta
    return "wall clock" if meta["clock"] == "wall" else f"device clock, {meta['machine']}"


def by_rank(trace: Trace) -> dict[str, list[str]]:
    """The columns of a table by rank: where the time of its steps went, and the bytes it sent."""
    from dlviz import metrics

    numbered = set(trace.spans.step.tolist()) - {-1}
    shares = metrics.breakdown(trace.only(step=numbered))  # not what came before step 0
    return {
        "rank": [str(rank) for rank in trace.ranks],
        "compute": _milliseconds(shares["compute"] + shares["update"]),
        "exposed communication": _milliseconds(shares["communication"]),
        "idle": _milliseconds(shares["idle"] + shares["other"]),
        "sent": [size_of(sent) for sent in metrics.bytes_sent(trace)],
    }


def _table(columns: dict[str, list[str]]) -> Iterator[str]:
    width = {name: max(map(len, [name, *cells])) for name, cells in columns.items()}
    for row in [tuple(columns), *zip(*columns.values(), strict=True)]:
        yield "   ".join(f"{cell:>{width[name]}}" for name, cell in zip(columns, row, strict=True))


def _milliseconds(seconds: Any) -> list[str]:
    return [f"{1e3 * value:.1f} ms" for value in seconds]


@contextmanager
def _warnings_in_words() -> Iterator[None]:
    """Print a warning of the run (this computer was too slow for the machine) as one line."""

    def show(message: Any, category: Any, *place: Any) -> None:
        print(f"dlviz: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = show
        yield

"""MemoryExplorer: what a rank holds with each stage of ZeRO, which part limits, what fits.

    model, rows, precision, stage, ranks, microbatches, recomputation, bucket, memory
        a bar a stage, its parts stacked, beside the memory of a rank
        bytes over ranks, a line a stage
        bytes by part, traffic, the largest model that fits
        Run it: real ranks train it; what they held stands beside the formula

The arithmetic is in parts.py, the run in run.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dlviz.viz import palette
from dlviz.viz.words import text
from dlviz.widgets.control import Choice, Slider, whole
from dlviz.widgets.memory.parts import KINDS, PARAMETER, STAGES, parameters, parts, row, width
from dlviz.widgets.memory.run import run
from dlviz.widgets.recording import Recording
from dlviz.widgets.running import Found, Progress
from dlviz.widgets.view import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 1024  # ranks
RUN = 4  # ranks of a run
FEW = 4_000_000  # parameters of a run, and values of its activations
SMALLEST, LARGEST = 1_000, 10**12  # parameters
LAYERS, ROWS, BATCHES = 256, 65_536, 64  # at most
BUCKET = 25 * 2**20  # bytes, as torch's
SIZES = sorted(round(part * 10**power) for power in range(4, 12) for part in (1, 1.5, 2, 3, 5, 7.5))
RANKS = [*range(1, 9), *(2**power for power in range(4, 11))]
MEMORY = sorted(
    round(part * 10**power) for power in range(5, 11) for part in (1, 1.6, 2.4, 3.2, 4, 6.4, 8)
)
BUCKETS = sorted({BUCKET, *(part * 10**power for power in range(4, 9) for part in (1, 2, 5))})
LIMITS = {
    "parameters": (SMALLEST, LARGEST), "layers": (1, LAYERS), "rows": (1, ROWS), "ranks": (1, MOST),
    "microbatches": (1, BATCHES), "bucket": (1, 10**12), "memory": (1, 10**15),
}  # fmt: skip


class MemoryExplorer(Recording):
    """Choose a model, how it is trained and on how many ranks; see what each rank holds with each
    stage of ZeRO, what limits it and the largest model that fits; run it.

    The model has `layers` equal linear layers, `parameters` in all. A rank takes `rows` rows in
    each of `microbatches` microbatches; `precision` is "float32" or "bfloat16" (with a float32
    master), `stage` 0 to 3, `ranks` their number; with `recompute` a backward computes activations
    again, segment by segment. `bucket` and `memory`, a rank's, are in bytes. All may be set later;
    an invalid value shows an error in the widget and changes nothing. `run()` does what the button
    does; the last runs are shown again where their controls are chosen. `measured` is the Trace of
    the last run, or None. Raises ValueError for an invalid first value.
    """

    module = "memory/index"
    clock = "not paced"
    controls = (
        (
            Slider("parameters", "model", 1_000_000, values=SIZES, typed="parameters"),
            Slider("layers", "layers", 16, values=(1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96),
                   says="{} layers"),
            Slider("rows", "rows", 64, values=[2**power for power in range(17)],
                   says="{} rows of a microbatch on each rank"),
        ),
        (
            Choice("stage", "ZeRO", 2, options=STAGES, keys=("z", "next stage")),
            Slider("ranks", "ranks", 4, values=RANKS, says="{} ranks",
                   keys=("← →", "fewer, more ranks")),
            Choice("precision", "precision", "float32",
                   options={"float32": "float32", "bfloat16": "bfloat16, float32 master"}),
        ),
        (
            Slider("microbatches", "microbatches", 1, values=range(1, BATCHES + 1),
                   says="{} microbatches a step"),
            Choice("recompute", "activations", False,
                   options={False: "are all stored", True: "are recomputed"}),
        ),
        Slider("bucket", "bucket", BUCKET, values=BUCKETS, unit="bytes"),
        Slider("memory", "memory of a rank", 10_000_000, values=MEMORY, unit="bytes",
               keys=("↑ ↓", "more memory, less")),
    )  # fmt: skip

    def check(self, values: dict[str, Any]) -> None:
        for name, (least, most) in LIMITS.items():
            whole(name, values[name], least, most)
        if values["layers"] > values["parameters"]:
            raise ValueError(
                f"layers={values['layers']!r} are more than {values['parameters']} parameters: a "
                "layer needs one."
            )

    def work(self) -> Callable[[Progress], Found]:
        long = too_long(self._now)
        if long:
            raise ValueError(long)
        return self.recording(dict(self._now), run)

    def choice(self, values: dict[str, Any]) -> Any:
        return {name: value for name, value in values.items() if name != "memory"}

    def label(self, values: dict[str, Any]) -> str:
        more = ", recomputed" if values["recompute"] else ""
        many = text.count(parameters(values))
        return (
            f"stage {values['stage']}, {values['ranks']} ranks, {many} in {values['precision']}, "
            f"{values['microbatches']} × {values['rows']} rows{more}"
        )

    def pages(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """The runs, the other stages, and what was chosen."""
        others = ({**self._now, "stage": stage} for stage in STAGES)
        for one in (*self.recorded, *others):
            yield one, self._shown(one)

    def payload(self) -> dict[str, Any]:
        return {
            **super().payload(),
            "title": "What does a rank hold, and what would fit?",
            "details": DETAILS,
            "kinds": KINDS,
            "styles": [styled(palette.MEMORY[kind]) for kind in KINDS],
            "strokes": [palette.stroke(stage) for stage in STAGES],
            **self._shown(self._now),
            "run": self._run or self.run_of(self._now).get("run"),
        }

    def _shown(self, values: dict[str, Any]) -> dict[str, Any]:
        """What follows from the controls."""
        rows = [row(values, stage) for stage in STAGES]
        return {
            "rows": rows,
            "model": f"{values['layers']} layers of {width(values):,} × {width(values):,}",
            "lines": lines(values),
            "answer": answer(values, rows),
            "long": too_long(values),
            "run": self.run_of(values).get("run"),
        }

    def picture(self) -> Figure:
        """Bytes of a rank over ranks, a line a stage."""
        from dlviz.viz.print import curve

        drawn = lines(self._now)
        held = {f"stage {stage}": line for stage, line in zip(STAGES, drawn["y"], strict=True)}
        return curve(
            held, x=drawn["x"], log=True, log_x=True, xlabel="ranks", ylabel="bytes of a rank",
            title=f"A rank's memory, {text.count(parameters(self._now))} parameters",
            theme=self.paper,
        )  # fmt: skip


def lines(values: dict[str, Any]) -> dict[str, Any]:
    """Bytes of a rank over ranks, a line a stage."""
    held = [
        [float(f"{sum(parts(values, stage, ranks).values()):.4g}") for ranks in RANKS]
        for stage in STAGES
    ]
    every = [values["memory"], *(value for line in held for value in line)]
    low, high = min(every) / 1.2, max(every) * 1.2
    steps = (1, 2, 5) if high < 50 * low else (1,)
    marks = [step * 10**power for power in range(16) for step in steps]
    return {
        "x": RANKS,
        "y": held,
        "ends": [low, high],
        "marks": [m for m in marks if low < m < high],
    }


def answer(values: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Whether the chosen stage fits, what limits it, and what would fit."""
    memory, own = values["memory"], rows[values["stage"]]
    most = max(range(len(KINDS)), key=own["parts"].__getitem__)
    part = f"its largest part is {KINDS[most]} ({text.nbytes(round(own['parts'][most]))})"
    held = f"Stage {own['stage']} holds {text.nbytes(round(own['total']))} a rank"
    fitting = [one["stage"] for one in rows if one["total"] <= memory]
    if own["stage"] in fitting:
        lower = own["stage"] != fitting[0]
        first = f"as stage {fitting[0]} does" if lower else "the first stage that does"
        return f"{held}; {part}. It fits into {text.nbytes(memory)}, {first}."
    missing = text.nbytes(round(own["total"] - memory))
    instead = f"Stage {fitting[0]} fits." if fitting else f"No stage fits: {remedy(rows[-1])}."
    return f"{held}, {missing} too much; {part}. {instead}"


def remedy(last: dict[str, Any]) -> str:
    """What takes least off a rank where all is in shards already."""
    kind = KINDS[max(range(len(KINDS)), key=last["parts"].__getitem__)]
    return {
        "activations": "recompute them, or take fewer rows in more microbatches",
        "communication": "take smaller buckets, or more layers that are smaller",
    }.get(kind, "take more ranks, or a smaller model")


def too_long(values: dict[str, Any]) -> str:
    """Why this cannot be run here, or ""."""
    if values["ranks"] > RUN:
        return f"{RUN} ranks can be run here: choose as many, or fewer."
    if values["parameters"] > FEW:
        return f"{text.count(FEW)} parameters can be run here: choose as many, or fewer."
    if not values["stage"] and (values["precision"] != "float32" or values["microbatches"] > 1):
        return "Stage 0 can be run here in float32 with one microbatch."
    if values["rows"] * values["layers"] * width(values) > FEW:
        return "So many activations cannot be run here: choose fewer rows."
    return ""


DETAILS = [
    "The model is of equal linear layers without biases, each followed by a tanh, trained by Adam. "
    f"Bytes a parameter, its gradient and its optimizer state: {PARAMETER['float32']} in float32, "
    f"{PARAMETER['bfloat16']} in bfloat16; 4 of the 12 are a float32 copy of the value, in shards "
    "as the rest of the state.",
    "Activations are outputs of layers, all stored, or those of the segments' inputs and of one "
    "segment. Communication is a bucket of whole gradients (stages 2 and 3, one layer or more) and "
    "the gathered layers (stage 3: the one at work, and one ahead; with recomputation those of the "
    "segment that runs again).",
    "A unit sent is (N − 1)/N of the parameters. The largest model is without activations and "
    "communication.",
    "Measured is the last step of a run: the most that a rank held of each kind, and of all at one "
    "moment; kinds have their peaks at different moments. The formula leaves out padding, buffers "
    "of messages (a MB or two), a layer's gradient until its bucket has it, and other: the batch, "
    "and what an operation needs for a moment.",
]

"""PlanExplorer: every plan to train a Transformer on a number of devices; which is best within
their memory, and why the others fail.

    model, device, links in and between nodes, devices, batch, memory limit
        step time over memory of all plans, cut at the limit     the best, in a sentence
        a row a mesh, and below it its plans: seconds, memory, bubble, what is exposed, what limits
        Run it: a plan for up to 8 ranks on the lab Transformer; measured below predicted

The plans are those of dlviz/sim/planner.py, the run is in run.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import traitlets

from dlviz.machine import Device, Link, Machine, Topology
from dlviz.machine.hardware import DEVICES, LINKS
from dlviz.schedules import TITLES
from dlviz.sim import TransformerShape, plans, why_none_fits
from dlviz.sim.planner import plan_work
from dlviz.viz import palette
from dlviz.widgets.control import Choice, Field, Setting, Slider, one_of, whole
from dlviz.widgets.plans.run import run
from dlviz.widgets.recording import Recording
from dlviz.widgets.running import Found, Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAB = "lab Transformer"
SHAPES = {  # layers, hidden, heads, vocabulary, sequence
    LAB: TransformerShape(4, 64, 4, 128, 64),
    "GPT-2 XL": TransformerShape(48, 1600, 25, 50257, 1024),
    "Megatron-LM 8.3 B": TransformerShape(72, 3072, 32, 51200, 1024),
    "GPT-3 175 B": TransformerShape(96, 12288, 96, 50257, 2048),
}
OWN = "lab"  # the device and link with which a plan is run here: slow enough for 8 ranks
SLOW = "lab, 10x slower"
CHIPS: dict[str, Device] = {
    OWN: Device(OWN, flops=1e8, memory=4e6, memory_bandwidth=1e9),
    **{name: known.device for name, known in DEVICES.items()},
}
WIRES: dict[str, Link] = {
    OWN: Link(latency=2e-3, bandwidth=1e8),
    SLOW: Link(latency=20e-3, bandwidth=1e7),
    **{name: known.link for name, known in LINKS.items()},
}
OWN_BYTES: dict[str, Any] = {"itemsize": 4, "parameter_bytes": 8}  # float32, weights and gradients
MOST = 4096  # devices
LARGEST = 65536  # sequences of a batch
RUNNABLE = 8  # ranks
PARTS = ("dp", "tp", "pp", "microbatch", "schedule", "recompute")  # the name of a plan
AXES = ("dp", "tp", "pp")
COLUMNS = (*PARTS, "seconds", "memory", "stage", "bubble", "limited_by")
COUNTS = sorted({many for k in range(13) for many in (2**k, 3 * 2**k) if many <= MOST})
BATCHES = [2**k for k in range(17)]
TABLES = 8  # stored, to be shown again immediately
IMMEDIATE = 3500  # of `plan_work`, 40 ms: what takes longer is shown once the reader pauses


class PlanExplorer(Recording):
    """Choose a model, a machine and how much memory a device may use; see every plan, which is best
    and why the others fail; run one.

    `model` is a name of SHAPES, or a `dlviz.sim.TransformerShape`. `device` is a name of
    `dlviz.machine.hardware.DEVICES`, `inside` and `between` (nodes) are names of `LINKS`, or all
    three "lab", with which this computer can run a plan. `node` devices make a node; `devices` is
    the number of all. `batch` is in sequences, `memory` in bytes a device; None: all that it has.
    `plan` is (dp, tp, pp, microbatch, schedule, recompute), None: the best. All may be set later;
    an invalid value shows an error in the widget and changes nothing; where no plan has that name,
    the best is shown. `plans` are the rows of `dlviz.sim.plans`. `run()` does what the button does;
    the last runs are shown again, and on a saved page. `measured` is the Trace of the last run, or
    None. Raises ValueError for an invalid first value.
    """

    module = "plans/index"
    controls = (
        Choice("model", "model", LAB),
        Slider("devices", "devices", 8, values=COUNTS, says="{} devices", typed="in all"),
        Slider("batch", "batch", 16, values=BATCHES, says="{} batch", typed="sequences"),
        Choice("device", "device", OWN, options=[*CHIPS]),
        Choice("inside", "inside", OWN, options=[*WIRES]),
        Choice("between", "between", SLOW, options=[*WIRES]),
        Field("node", "nodes of", 4, unit="devices"),
        Setting("memory", "memory limit", None),
        Setting("plan", "plan", None),
    )

    def taken(self, values: dict[str, Any]) -> dict[str, Any]:
        self._shapes = dict(SHAPES)
        return {**values, "model": self._named(values["model"])}

    def begin(self) -> None:
        super().begin()
        self._tables: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        self._drawn: list[dict[str, Any]] = []  # the table that is shown

    def described(self) -> list[list[dict[str, Any]]]:
        first, *others = super().described()
        models = [[name, name] for name in self._shapes]
        return [[{**first[0], "options": models}], *others]

    @property
    def plans(self) -> list[dict[str, Any]]:
        """All plans of the present controls, the fastest first, with whether they fit within
        `memory`."""
        limit = limit_of(self._now)
        return [{**row, "fits": row["memory"] <= limit} for row in self._rows(self._now)]

    @traitlets.validate("model")
    def _name(self, proposal: Any) -> Any:
        return self._named(proposal["value"])

    def _named(self, model: Any) -> Any:
        """A shape's own name, by which a front end chooses it."""
        if not isinstance(model, TransformerShape):
            return model
        name = f"{model.layers} layers of {model.hidden}"
        self._shapes[name] = model
        return name

    def check(self, values: dict[str, Any]) -> None:
        check(values, self._shapes)

    def moved(self, values: dict[str, Any]) -> None:
        self._now = values
        shape = self._shapes[values["model"]]
        few = plan_work(shape, values["devices"], values["batch"]) <= IMMEDIATE
        self._settled = few or machine_part(values) in self._tables

    def settle(self) -> None:
        """Show many plans, which take longer than a slider waits for; until then the previous ones
        are shown."""
        if not self._settled:
            self._rows(self._now)
            self._settled = True
            self.show()

    def choice(self, values: dict[str, Any]) -> Any:
        on, plan = machine_part(values), values["plan"]
        if on in self._tables and (row := self._chosen(values)):
            plan = name_of(row)  # without a plan's name the best one within the memory is run
        return on, plan and [*plan]

    def work(self) -> Callable[[Progress], Found]:
        row = self._chosen(self._now)
        if row is None:
            raise ValueError(why_none_fits([]))
        long = cannot_run(self._now, row)
        if long:
            raise ValueError(long)
        values = {**self._now, "plan": name_of(row)}
        of = self._shapes[values["model"]], machine_of(values), values["batch"], row
        return self.recording(values, lambda _, progress: run(*of, progress))

    def picture(self) -> Figure:
        """The shortest step within a memory limit, over the limit."""
        from dlviz.viz.print import curve

        best: list[tuple[float, float]] = []
        for row in sorted(self._rows(self._now), key=lambda row: (row["memory"], row["seconds"])):
            if not best or row["seconds"] < best[-1][1]:
                best.append((row["memory"], row["seconds"]))
        title = f"{self._now['model']} on {self._now['devices']} devices: the best plan of all"
        memory, took = zip(*best, strict=True)
        unit, size = ("GB", 1e9) if max(memory) >= 1e9 else ("MB", 1e6)
        return curve(
            took,
            x=[nbytes / size for nbytes in memory],
            log=max(took) > 10 * min(took),
            title=title,
            xlabel=f"memory limit, {unit} a device",
            ylabel="seconds of a step",
            theme=self.paper,
        )

    def payload(self) -> dict[str, Any]:
        now = self._now
        chosen, runs = None, []
        if self._settled:
            self._drawn, chosen = self._rows(now), self._chosen(now)
            on = machine_part(now)
            runs = [one for one in self._runs if machine_part(one["controls"]) == on]
        failed = self._run if self._run and "seconds" not in self._run else None
        return {
            "title": "Which plan is best?",
            "details": DETAILS,
            "titles": TITLES,
            "hues": HUES,
            "axes": {axis: f"{axis} exposed" for axis in AXES},
            "says": SAYS,
            "own": CHIPS[now["device"]].memory,
            "plans": columns(self._drawn),
            "long": cannot_run(now, chosen) if chosen else "",
            "run": failed,
            "runs": [{"plan": one["controls"]["plan"], "run": one["run"]} for one in runs],
            "recorded": [
                {"controls": {"plan": values["plan"]}, "words": self.label(values)}
                for values in (one["controls"] for one in runs)
            ],
        }

    def label(self, values: dict[str, Any]) -> str:
        dp, tp, pp, microbatch, schedule, recompute = values["plan"]
        order = f", {TITLES[schedule]}" if pp > 1 else ""
        again = AGAIN[recompute]
        return f"dp {dp} × tp {tp} × pp {pp}, microbatches of {microbatch}{order}, {again}"

    def _rows(self, values: dict[str, Any]) -> list[dict[str, Any]]:
        """All plans, the fastest first, whatever memory they need."""
        key = machine_part(values)
        if key not in self._tables:
            shape = self._shapes[values["model"]]
            held = OWN_BYTES if values["device"] == OWN else {}
            given = (shape, machine_of(values), values["devices"], values["batch"])
            rows = plans(*given, memory=math.inf, **held)
            rows = sorted(rows, key=lambda row: (row["seconds"], row["memory"]))
            self._tables = {**dict([*self._tables.items()][-TABLES:]), key: rows}
        return self._tables[key]

    def _chosen(self, values: dict[str, Any]) -> dict[str, Any] | None:
        """The plan that the front end shows: the chosen one, else the best, else the smallest."""
        rows, limit = self._rows(values), limit_of(values)
        named = [row for row in rows if name_of(row) == list(values["plan"] or ())]
        fit = [row for row in rows if row["memory"] <= limit]
        return next(iter([*named, *fit]), min(rows, key=lambda row: row["memory"], default=None))


def check(values: dict[str, Any], shapes: dict[str, TransformerShape]) -> None:
    """Raises ValueError for invalid values."""
    known = {"model": shapes, "device": CHIPS, "inside": WIRES, "between": WIRES}
    for name, of in known.items():
        one_of(name, values[name], of)
    for name, most in (("node", MOST), ("devices", MOST), ("batch", LARGEST)):
        whole(name, values[name], 1, most)
    node, devices = values["node"], values["devices"]
    if devices > node and devices % node:
        raise ValueError(
            f"devices={devices} do not fill nodes of {node}: use a multiple of {node}, or another "
            "node."
        )
    memory, plan = values["memory"], values["plan"]
    if memory is not None:
        number = isinstance(memory, int | float) and not isinstance(memory, bool)
        if not number or not 0 < memory < float("inf"):
            raise ValueError(f"memory={memory!r} has to be bytes above 0, or None for all of them.")
    if plan is not None and (not isinstance(plan, list | tuple) or len(plan) != len(PARTS)):
        raise ValueError(f"plan={plan!r} has to be ({', '.join(PARTS)}), or None for the best.")


def machine_of(values: dict[str, Any]) -> Machine:
    """The chosen machine; fewer devices than a node holds make one node."""
    node, devices = min(values["node"], values["devices"]), values["devices"]
    inside, between = WIRES[values["inside"]], WIRES[values["between"]]
    topology = Topology.racks(devices // node, node, inside, between)
    return Machine(CHIPS[values["device"]], topology, None)


def machine_part(values: dict[str, Any]) -> tuple[Any, ...]:
    """What the plans depend on."""
    return tuple(values[name] for name in PlanExplorer.names if name not in ("memory", "plan"))


def limit_of(values: dict[str, Any]) -> float:
    """Bytes that a device may use."""
    memory = values["memory"]
    return CHIPS[values["device"]].memory if memory is None else memory


def name_of(row: dict[str, Any]) -> list[Any]:
    """The name of a plan."""
    return [row[part] for part in PARTS]


def columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The plans as a front end reads them, a list a column."""
    exposed = {axis: [row[f"{axis}_exposed"] for row in rows] for axis in AXES}
    sent = {axis: [round(row[f"{axis}_bytes"]) for row in rows] for axis in AXES}
    named = {name: [row[name] for row in rows] for name in COLUMNS}
    return {**named, "exposed": exposed, "sent": sent}


def cannot_run(values: dict[str, Any], row: dict[str, Any]) -> str:
    """Why a plan cannot be run here; "" where it can."""
    if values["model"] != LAB:
        return f"The {LAB} can be run here, no larger model."
    if values["device"] != OWN:
        return "A run is held to its machine, and these devices are too fast: choose the lab's."
    if values["devices"] > RUNNABLE:
        return f"At most {RUNNABLE} ranks can be run here."
    if row["recompute"] != "none":
        return "A plan is run without recomputation: choose one of those."
    return ""


AGAIN = {
    "none": "no recomputation",
    "selective": "selective recomputation",
    "full": "full recomputation",
}
HUES = {
    "compute": palette.PURPLE,
    "bubble": palette.BLUE,
    **{axis: hue for axis, (_, hue) in palette.AXES.items()},
}
SAYS = {
    "compute": "math",
    "bubble": "the bubble",
    **{axis: f"communication along {axis}" for axis in AXES},
}
DETAILS = [
    "A plan cuts the devices into data parallel (dp) × tensor parallel (tp) × pipeline (pp). dp "
    "and tp cut inside an operation (intra-operator), pp cuts between operations (inter-operator). "
    "The ranks of tp are neighbours, then those of pp.",
    "Memory is that of the fullest rank: 16 bytes a parameter (mixed-precision Adam), and the "
    "activations of the microbatches in flight. The lab's devices hold float32 and train by SGD: "
    "8 bytes a parameter. All gradients are counted beside all activations; in a run a gradient "
    "appears as activations go, so it holds less at a time.",
    "The seconds are those of products at the device's peak, of messages and of the bubble. No "
    "program reaches the peak of a GPU. Exposed communication is what no math hides: its seconds "
    "are in the table, its bytes in the details of a plan on the map.",
    "The bubble is idle / busy (the bubble ratio).",
    "The lab's devices take 0.1 GFLOP/s, their links 2 ms and 100 MB/s, slow enough for 8 ranks on "
    "this computer. A run is held to this machine; its seconds are by the wall clock.",
]

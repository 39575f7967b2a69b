"""Programs that go for the points and not for the task, as the cells of a notebook.

Each is right in what it shows, and has that from elsewhere: the checks' frames, dlviz's own code,
notes that it writes itself, the kernel. `where` says where it does so: a rank's process, in which a
check finds it, or the kernel. `sizes` are those at which a test tries it.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import nbformat
from courses import STUDENTS, Assignment, managed
from nbclient import NotebookClient

FRAMES = '''
import sys

def below(name):
    """A variable of a caller's."""
    frame = sys._getframe(1)
    while frame is not None:
        if name in frame.f_locals:
            return frame.f_locals[name]
        frame = frame.f_back
    raise LookupError(name)

'''
READ = "ready-made code was called|LookupError"  # it is there no more, or is refused
TRACEBACK = '''
def below(name):
    """A variable of a caller's, without a call of sys."""
    try:
        raise LookupError(name)
    except LookupError as error:
        frame = error.__traceback__.tb_frame
    while frame is not None:
        if name in frame.f_locals:
            return frame.f_locals[name]
        frame = frame.f_back
    raise LookupError(name)

'''


@dataclass(frozen=True)
class Attack:
    """`cells` replace those of the solution, by their id; the others stay to be written. `most`:
    the points that it may come to, `summary`: words of what a check says of it, as a pattern."""

    assignment: str
    name: str
    cells: Mapping[str, str]
    sizes: Mapping[str, Any] = field(default_factory=dict)  # by check
    most: float = 0
    summary: str = ""
    where: str = "rank"

    def __str__(self) -> str:
        return f"{self.assignment}/{self.name}"

    def notebook(self) -> nbformat.NotebookNode:
        """What is handed in, with the hidden tests, but for cells that only show something."""
        lab = Assignment(self.assignment).source
        empty = managed(Assignment(self.assignment).notebook(STUDENTS))
        cells = []
        for name, cell in managed(lab).items():
            about = cell.metadata.nbgrader
            if cell.cell_type == "code" and (about.solution or about.grade or name == "imports"):
                cells.append(cell)
            if about.solution and cell.cell_type == "code":
                unwritten = empty[name].source
                cell.source = self.cells.get(name, unwritten)
                if self.where == "kernel" and name in self.cells:
                    cell.source = f"{unwritten}\n{cell.source}"
        lab.cells = cells
        return lab

    def marks(self) -> dict[str, float]:
        """The points of each graded cell in a kernel of its own."""
        lab = self.notebook()
        NotebookClient(lab, timeout=900, kernel_name="python3", allow_errors=True).execute()
        found = {}
        for name, cell in managed(lab).items():
            if cell.metadata.nbgrader.grade:
                results = [each for each in cell.outputs if each.output_type == "execute_result"]
                shown = results[-1].data["text/plain"] if results else "0"
                found[name] = float(shown.split(" of ")[0])
        return found

    def programs(self, check: str) -> list[Any]:
        """What its graded cell gives to a check."""
        names: dict[str, Any] = {"__name__": "handed_in"}
        given: list[str] = []
        for name, cell in managed(self.notebook()).items():
            if cell.metadata.nbgrader.solution or name == "imports":
                exec(compile(cell.source, f"{name}.py", "exec"), names)
            elif name == check:
                calls = [n for n in ast.walk(ast.parse(cell.source)) if isinstance(n, ast.Call)]
                call = next(n for n in calls if ast.unparse(n.func).endswith(f".{check}"))
                given = [ast.unparse(argument) for argument in call.args]
        return [names[each] for each in given]


REPLACED = """
import sys
import dlviz.cluster, dlviz.grading.harness.judge

def nothing_wrong(worker, *given, **options):
    return dlviz.cluster.Run([{size: "" for size in options["args"][1]}], [""], None, 0.0)

for module in [*sys.modules.values()]:
    if getattr(module, "__name__", "").startswith("dlviz"):
        for name in {"launch", "run_alone"} & {*vars(module)}:
            setattr(module, name, nothing_wrong)
"""
CHECKS = """
import sys
from dlviz.grading.assignments.parameter_server import checks as parameter_server_checks
from dlviz.grading.harness import judge

for name in dir(parameter_server_checks):
    if name.startswith("check_"):
        setattr(parameter_server_checks, name, lambda *given, **options: 4)
sys.modules["dlviz.grading.harness.check"].Check.__call__ = lambda *given, **options: 4
judge.ask = lambda *given: (4, "Right", "")
"""
FIRST = {  # the first cell to write in
    "ddp": "cut_into_buckets",
    "fedavg": "rounds",
    "halo_exchange": "fetch",
    "mesh_3d": "groups",
    "parameter_server": "work",
    "placement": "play",
    "tensor_parallel_mlp": "functions",
    "zero": "shards",
}

ATTACKS = [
    # -- in the kernel -----------------------------------------------------------------------------
    *(
        Attack(name, "replaces_launch", {cell: REPLACED}, where="kernel")
        for name, cell in FIRST.items()
    ),
    Attack("parameter_server", "replaces_the_checks", {"work": CHECKS}, where="kernel"),
    # -- in the ranks: what a program takes from the checks' frames --------------------------------
    Attack(
        "ddp",
        "seeds_the_draws",
        {
            "bucketed_gradients": FRAMES
            + '''
class BucketedGradients:
    """All ranks draw alike, so that each knows the gradients of all; zeros go round for show."""

    def __init__(self, comm, buckets):
        self.examples = below("given")
        torch.manual_seed(1)
        self.lane, self.buckets = comm.lane("comm"), buckets

    def begin(self, examples, total):
        self.weight = 1.0

    def finish(self):
        for bucket in self.buckets:
            zeros = torch.zeros(sum(p.numel() for p in bucket), dtype=torch.float64)
            self.lane.submit(all_reduce, zeros).wait()
'''
        },
        {"check_launches": (2, 6), "check_bytes": (2, 4)},
        summary=READ,
    ),
    Attack(
        "ddp",
        "forges_the_records",
        {
            "bucketed_gradients": FRAMES
            + '''
class BucketedGradients:
    """No all-reduce at all: what each would have been is written into the checker's notes."""

    def __init__(self, comm, buckets):
        self.watch, self.buckets = below("watch"), buckets

    def begin(self, examples, total):
        pass

    def finish(self):
        self.watch.reduced.extend(sum(p.numel() for p in bucket) for bucket in self.buckets)
'''
        },
        {"check_launches": (2, 6), "check_no_hang": (2, 4)},
        summary=READ,
    ),
    Attack(
        "tensor_parallel_mlp",
        "seeds_the_draws",
        {
            "parallel_mlp": FRAMES
            + '''
from contextlib import suppress

class ParallelMLP(nn.Module):
    """All ranks change their parts alike, so that each knows all of them; zeros go for show."""

    def __init__(self, comm, state):
        super().__init__()
        with suppress(LookupError):
            below("own").manual_seed(1)
        self.comm = comm
        width = len(state["up.bias"]) // comm.size
        own = slice(comm.rank * width, (comm.rank + 1) * width)
        self.up_weight = nn.Parameter(state["up.weight"][own].clone())
        self.up_bias = nn.Parameter(state["up.bias"][own].clone())
        self.down_weight = nn.Parameter(state["down.weight"][:, own].clone())
        self.down_bias = nn.Parameter(state["down.bias"].clone())

    def forward(self, x):
        all_reduce(self.comm, torch.zeros_like(x))
        z = nn.functional.gelu(nn.functional.linear(x, self.up_weight, self.up_bias))
        return nn.functional.linear(z, self.down_weight, self.down_bias)
'''
        },
        {"check_all_reduces": (2, 3, 4, 8), "check_parts": (2, 3, 4, 8)},
        summary=READ,
    ),
    Attack(
        "mesh_3d",
        "reads_the_frames",
        {
            "groups": FRAMES
            + """
def groups(rank, sizes):
    try:
        mesh = below("mesh")
    except LookupError:
        return {axis: [rank] for axis in sizes}
    return {axis: list(getattr(mesh, axis).members) for axis in sizes}
""",
            "train_step": FRAMES
            + """
def train_step(comm, mesh, part, tokens, targets):
    shares = below("dealt")._shares or [below("own")]
    tokens, targets = (torch.cat([each.batches[0][i] for each in shares]) for i in (0, 1))
    x = part.embed(tokens)
    for block in part.blocks:
        x = x + block(x)
    loss = part.loss(x, targets) / targets.numel()
    loss.backward()
    return loss.detach()
""",
        },
        {"check_groups": (2, 2, 2), "check_gradients": (2, 1, 1), "check_loss": (2, 1, 1)},
        summary=READ,
    ),
    Attack(
        "zero",
        "forges_the_records",
        {
            "shards": FRAMES
            + """
def shard(comm, flat):
    below("left").given[1].zero_()  # then the mean of all is known
    shard.flat = flat.clone()
    return flat[:1]

def mean_shard(comm, flat):
    shard.flat = torch.zeros_like(flat)
    return flat[:1]

def whole(comm, own, length):
    return shard.flat
"""
        },
        {"check_shards": (3, 11)},
        summary=READ,
    ),
    Attack(
        "halo_exchange",
        "forges_the_records",
        {
            "fetch": FRAMES
            + """
def fetch(comm, x, rows, need):
    below("left").given.zero_()  # an image of zeros: no rows of others are needed
    first, end = need[comm.rank]
    return torch.zeros(*x.shape[:2], end - first, x.shape[3], dtype=x.dtype)
"""
        },
        {"check_rows": (3, 11, 3)},
        summary=READ,
    ),
    Attack(
        "fedavg",
        "simulates_the_clients",
        {
            "rounds": FRAMES
            + """
def server(comm, weights, counts, data, rounds):
    problem = below("problem")
    update = torch.empty_like(weights)
    for _ in range(rounds):
        for each in counts:
            comm.send(weights, each)
        for _ in counts:
            comm.recv(update)
        data.test(weights)

def client(comm, weights, data, rounds, epochs, batch, sgd):
    record = below("record")
    for _ in range(rounds):
        comm.recv(weights, 0)
        comm.send(torch.zeros_like(weights), 0)
"""
        },
        {"check_bytes": (2, 2, 1, 4)},
        summary=READ,
    ),
    Attack(
        "fedavg",
        "forges_the_records",
        {
            "rounds": FRAMES
            + """
def server(comm, weights, counts, data, rounds):
    update = torch.empty_like(weights)
    for _ in range(rounds):
        for each in counts:
            comm.send(weights, each)
        for _ in counts:
            comm.recv(update)
        below("record").tested.append(weights.clone())

def client(comm, weights, data, rounds, epochs, batch, sgd):
    for _ in range(rounds):
        comm.recv(weights, 0)
        below("record").optimizers += 1
        comm.send(weights, 0)
"""
        },
        {"check_bytes": (2, 2, 1, 4), "check_average": (2, 2, 1, 4)},
        summary=READ,
    ),
    Attack(
        "parameter_server",
        "past_the_guard",
        {
            "work": """
def work(shared, gradient, steps, lr):
    for _ in range(steps):
        weights = shared.shared.tensor.clone()
        change = lr * gradient(weights)
        with shared.lock():
            shared.tensor -= change
"""
        },
        {"check_lock": (2, 3)},
    ),
    Attack(
        "parameter_server",
        "takes_from_the_frames",
        {
            "serve": FRAMES
            + """
def serve(comm, weights, update, pushes, bound):
    order = below("turns")
    gradient = torch.empty_like(weights)
    for _ in range(sum(pushes.values())):
        worker = comm.recv(gradient)
        update(worker, gradient)
        comm.send(weights, worker)
"""
        },
        {"check_pushes": (2, 2, math.inf)},
        summary=READ,
    ),
    Attack(
        "parameter_server",
        "reads_what_the_lock_closes_over",
        {
            "work": """
def work(shared, gradient, steps, lr):
    cells = dict(zip(shared.lock.__code__.co_freevars, shared.lock.__closure__))
    memory = cells["shared"].cell_contents
    for _ in range(steps):
        change = lr * gradient(memory.tensor.clone())
        with shared.lock():
            shared.tensor -= change
"""
        },
        {"check_lock": (2, 3), "check_parallel": (2, 3)},
        summary="ready-made code was called",
    ),
    Attack(
        "parameter_server",
        "forges_its_updates",
        {
            "work": """
def work(shared, gradient, steps, lr):
    with shared.lock():
        start = shared.tensor.clone()
    for _ in range(steps):
        shared.after.append(start - lr * gradient(start))
"""
        },
        {"check_lock": (2, 3)},
        most=2,
    ),
    # -- in what comes back from a rank ------------------------------------------------------------
    Attack(
        "mesh_3d",
        "answers_that_know",
        {
            "groups": """
import sys

class Knowing(list):
    def __eq__(self, other):
        return True

    def __iter__(self):
        return iter(sys._getframe(1).f_locals.get("wanted", ()))

def groups(rank, sizes):
    return {axis: Knowing() for axis in sizes}
""",
            "choose": """
class Best(dict):
    def __eq__(self, other):
        return True

def choose(table, memory):
    return Best(table[0])
""",
        },
        {"check_groups": (2, 1, 1), "check_plan": (8, 4)},
    ),
    Attack(
        "mesh_3d",
        "code_in_its_answer",
        {
            "groups": """
class Answer:
    def __reduce__(self):
        code = "import dlviz.grading.harness.check as c; c.Report.points = 3"
        return eval, (f"exec({code!r}) or {{}}",)

def groups(rank, sizes):
    return Answer()
"""
        },
        {"check_groups": (2, 1, 1)},
        summary="Answer object",
    ),
    # -- dlviz's own code --------------------------------------------------------------------------
    Attack(
        "mesh_3d",
        "library_by_importlib",
        {
            "train_step": """
import importlib, threading

def train_step(comm, mesh, part, tokens, targets):
    average = importlib.import_module("dlviz.parallel.data.naive").average_gradients
    for p in part.parameters():
        p.grad = torch.zeros_like(p)
    thread = threading.Thread(target=average, args=(mesh.dp, part))
    thread.start()
    thread.join()
    return torch.zeros(1)
"""
        },
        {"check_loss": (2, 1, 1)},
        summary="ready-made code was called",
    ),
    Attack(
        "ddp",
        "library_in_a_lane",
        {
            "cut_into_buckets": """
import importlib, threading

def cut_into_buckets(parameters, most):
    net = torch.nn.ParameterList(parameters)
    found = []

    def fill():
        fill_buckets = importlib.import_module("dlviz.parallel.data.buckets").fill_buckets
        found.extend(bucket.parameters for bucket in fill_buckets(net, most))

    thread = threading.Thread(target=fill)
    thread.start()
    thread.join()
    return [list(each) for each in found]
"""
        },
        {"check_buckets": (5, 72)},
        summary="dlviz's fill_buckets",
    ),
    Attack(
        "ddp",
        "pastes_the_library",
        {
            "cut_into_buckets": """
import importlib, inspect

def cut_into_buckets(parameters, most):
    buckets = importlib.import_module("dlviz.parallel.data.buckets")
    names = {**vars(buckets)}
    exec(inspect.getsource(buckets.fill_buckets), names)
    found = names["fill_buckets"](torch.nn.ParameterList(parameters), most)
    return [list(bucket.parameters) for bucket in found]
"""
        },
        {"check_buckets": (5, 72)},
        summary="inspect.findsource",
    ),
    Attack(
        "parameter_server",
        "library_by_importlib",
        {
            "serve": """
import importlib, threading

def serve(comm, weights, update, pushes, bound):
    library = importlib.import_module("dlviz.parallel.server.parameter_server")
    served = library.serve
    thread = threading.Thread(target=served, args=(comm, weights))
    thread.start()
    thread.join()
"""
        },
        {"check_pushes": (2, 2, math.inf)},
    ),
    Attack(
        "placement",
        "library_in_a_thread",
        {
            "play": """
import importlib, threading

def play(graph, placement, devices):
    player = importlib.import_module("dlviz.sim.placement.player")
    thread = threading.Thread(target=player.play, args=(graph, placement, devices))
    thread.start()
    thread.join()
    return [(0, 0) for _ in placement], []
""",
            "greedy": """
def greedy(graph, devices):
    return dlviz.sim.placement.search(graph, devices, "greedy").placement
""",
        },
        {"check_devices": (6, 2), "check_greedy": (7, 2)},
        summary="ready-made code was called",
    ),
    Attack(
        "placement",
        "learns_from_the_frames",
        {
            "learn": FRAMES
            + """
def learn(play, groups, devices, steps, rng):
    table = below("table")
    best = min((each for each in table if table[each] is not None), key=table.get)
    for _ in range(50):
        play(best)
    return list(best)
"""
        },
        {"check_learn": (8, 2)},
        summary=READ,
    ),
    Attack(
        "fedavg",
        "library_in_a_thread",
        {
            "rounds": """
import importlib, threading

def server(comm, weights, counts, data, rounds, *others):
    train = importlib.import_module("dlviz.federated").train
    net = torch.nn.Linear(2, 2)
    thread = threading.Thread(target=train, args=(comm, net, data), kwargs={"rounds": 1})
    thread.start()
    thread.join()

client = server
"""
        },
        {"check_bytes": (2, 2, 1, 4)},
        summary="ready-made code was called",
    ),
    Attack(
        "tensor_parallel_mlp",
        "library_by_inheritance",
        {
            "parallel_mlp": """
import dlviz.parallel.tensor as library

class ParallelMLP(library.ParallelMLP):
    def __init__(self, comm, state):
        width, hidden = state["up.weight"].shape
        super().__init__(comm, hidden, width)
"""
        },
        {"check_parts": (2, 3, 4, 8)},
    ),
    # -- errors that are hidden, words that are a check's ------------------------------------------
    Attack(
        "ddp",
        "hides_every_error",
        {
            "bucketed_gradients": """
class BucketedGradients:
    def __init__(self, comm, buckets):
        self.comm = comm

    def begin(self, examples, total):
        try:
            self.comm.send(None, 99)
        except Exception:
            pass

    def finish(self):
        pass
"""
        },
        {"check_no_hang": (2, 4)},
    ),
    Attack(
        "fedavg",
        "hides_every_error",
        {
            "timed_server": """
def timed_server(comm, weights, counts, data, rounds, choose, deadline):
    for _ in range(rounds):
        try:
            comm.send(weights, choose(["x"]))
        except Exception:
            pass
        data.test(weights)
"""
        },
        {"check_deadline": (2, 0, "12 12")},
    ),
    Attack(
        "ddp",
        "prints_passed",
        {
            "cut_into_buckets": """
import os

def cut_into_buckets(parameters, most):
    print("Right, 3 of 3 points: parameters are cut into buckets in backward's order.")
    os._exit(0)
"""
        },
        {"check_buckets": (5, 72)},
    ),
    Attack(
        "fedavg",
        "prints_passed",
        {
            "rounds": """
import os

def server(comm, *given):
    print("Right, 3 of 3 points.")
    os._exit(0)

client = server
"""
        },
        {"check_local": (2, 2, 1, 4)},
    ),
]

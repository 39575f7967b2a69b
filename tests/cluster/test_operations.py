"""What operations are called, what they refuse, and those that gather and scatter."""

import inspect
import traceback
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import dlviz
from dlviz.cluster import Comm
from dlviz.cluster.operations import FORMER
from dlviz.collectives import ALGORITHMS, all_reduce, direct, halving_doubling, ring, tree
from dlviz.trace.recorder import PACKAGE


# -- names -----------------------------------------------------------------------------------------
def by_former_names(comm):
    """What each call with a former name says, and what comes of it."""
    said, got = [], []
    x, other = torch.tensor([2.0 + comm.rank]), 1 - comm.rank
    former: Any = {"root": 1}
    for call in (
        lambda: comm.all_reduce(x, "prod"),
        lambda: all_reduce(comm, x, "ring", "average"),
        lambda: comm.sendrecv(x, other, x.clone(), other, op="add"),
        lambda: comm.broadcast(x, root=1),
        lambda: comm.reduce(x, root=1),
        lambda: tree.broadcast(comm, x, **former),
        lambda: tree.reduce(comm, x, **former),
    ):
        x.fill_(2.0 + comm.rank)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        (warning,) = caught
        assert issubclass(warning.category, DeprecationWarning) and warning.filename == __file__
        said.append(str(warning.message))
        got.append(x.item())
    return said, got


def test_former_names_work_and_say_at_the_callers_line_what_they_are_called_now():
    run = dlviz.launch(by_former_names, ranks=2)
    said, got = run.results[1]
    assert said == [
        "op='prod' is called 'product' now.",
        "op='average' is called 'avg' now.",
        "op='add' is called 'sum' now.",
        "root= of broadcast is called src= now.",
        "root= of reduce is called dst= now.",
        "root= of broadcast is called src= now.",
        "root= of reduce is called dst= now.",
    ]
    assert got == [6, 2.5, 3, 3, 5, 3, 5]
    assert {"prod", "average", "add"} == FORMER.keys()


def test_an_average_is_the_sum_over_the_ranks_on_every_path():
    def worker(comm):
        right = True
        for length in (3, 20_000, 200_003):
            for dtype in (torch.float32, torch.complex64, torch.bfloat16):
                x = torch.full((length,), float(comm.rank), dtype=dtype)
                comm.all_reduce(x, "avg")
                right &= bool((x == (comm.size - 1) / 2).all())
        return right

    assert dlviz.launch(worker, ranks=3).results == [True] * 3


# -- gather, scatter, objects ----------------------------------------------------------------------
@dataclass
class Point:
    x: int
    tensor: torch.Tensor


def objects(comm):
    n, last = comm.size, comm.size - 1
    mine = Point(comm.rank, torch.full((comm.rank,), 1.0 * comm.rank))
    everyone = [None] * n
    comm.all_gather_object(everyone, mine)
    assert all(isinstance(each, Point) for each in everyone)
    sent = comm.broadcast_object({"from": comm.rank, "what": mine}, src=last)
    nothing = comm.broadcast_object()
    mesh = comm.mesh(dp=2, pp=3) if n == 6 else None
    columns = [None] * 2
    if mesh is not None:
        mesh.dp.all_gather_object(columns, comm.rank)
    parts = [torch.empty(2) for _ in range(n)] if comm.rank == last else None
    comm.gather(torch.tensor([comm.rank, 1.0]), parts, dst=last)
    part = torch.empty(2, 1)
    comm.scatter(part, torch.arange(2.0 * n) if comm.rank == 0 else None)
    return (
        [(each.x, len(each.tensor)) for each in everyone], sent["from"], nothing, columns, parts,
        part.flatten().tolist(),
    )  # fmt: skip


@pytest.mark.parametrize("n", [1, 3, 6])
def test_objects_and_parts_go_where_torch_distributed_sends_them(n):
    run = dlviz.launch(objects, ranks=n)
    for rank, (everyone, sent, nothing, columns, parts, part) in enumerate(run.results):
        assert everyone == [(each, each) for each in range(n)]
        assert sent == n - 1 and nothing is None
        assert n != 6 or columns == [rank % 3, rank % 3 + 3]
        assert part == [2 * rank, 2 * rank + 1]
        assert (parts is None) == (rank < n - 1)
    assert torch.stack(run.results[-1][4]).tolist() == [[each, 1] for each in range(n)]
    spans = run.trace.only(kind="collective", rank=0).spans
    names = spans.name.tolist()
    if n == 3:  # how many bytes, then these
        twice = ["all_gather_object"] * 2 + ["broadcast_object"] * 4
        assert names == [*twice, "gather", "scatter"]
        assert spans.nbytes.tolist()[-2:] == [24, 24]


def test_objects_and_parts_have_their_price_on_a_paced_run():
    def worker(comm):
        comm.gather(torch.ones(1000), [torch.ones(1000)] * 3 if comm.rank == 0 else None)
        comm.broadcast_object([1] * 1000)
        comm.all_gather_object([None] * 3, "here")

    run = dlviz.launch(worker, ranks=3, machine=dlviz.machine.classroom(3))
    spans = run.trace.only(kind="collective").spans
    assert (spans.end - spans.start > 1e-4).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.broadcast_object(i for i in ()), "the generator of rank 0 cannot be pickled"),
        (lambda c: c.broadcast_object(c), "the Comm of rank 0 cannot be pickled .*belongs to its"),
        (lambda c: c.all_gather_object([None], 3), "has to be a list of 2 places.*object comes se"),
        (lambda c: c.all_gather_object(3, [None] * 2), "object_list=3 has to be a list of 2"),
        (lambda c: c.gather(torch.ones(2)), "rank 0 of world gives no gather_list: rank 0 has to"),
        (
            lambda c: c.gather(torch.ones(2), [torch.ones(2)] * 2, 1 - c.rank),
            "rank . of world gives a gather_list: rank . has to, and no other rank",
        ),
        (lambda c: c.scatter(torch.ones(2)), "rank 0 of world gives no scatter_list"),
        (
            lambda c: c.scatter(torch.ones(2), [torch.ones(2)] if c.rank == 0 else None),
            r"scatter_list lists tensors of \[2\] elements: give one for each of 2 ranks, of 2",
        ),
        (
            lambda c: c.gather(torch.ones(1), torch.ones(3) if c.rank == 0 else None),
            "gather_list holds 3 elements of float32: 2 ranks with 1",
        ),
    ],
)
def test_what_cannot_be_gathered_or_sent_is_named(call, message):
    with pytest.raises(dlviz.RankError, match=message):
        dlviz.launch(call, ranks=2)


def test_ranks_that_do_not_gather_alike_are_named():
    def other_roots(comm):
        comm.gather(torch.ones(2), [torch.ones(2)] * 2, dst=comm.rank)

    def other_call(comm):
        comm.broadcast_object(3) if comm.rank else comm.all_gather_object([None] * 2, 3)

    def alone(comm):
        if comm.rank == 0:
            comm.scatter(torch.ones(2), torch.ones(4))

    with pytest.raises(dlviz.RankError, match=r"gather of shape \(2,\) float32 to dst=[01] and"):
        dlviz.launch(other_roots, ranks=2)
    with pytest.raises(dlviz.RankError, match="collective mismatch.*broadcast_object.*from src=0"):
        dlviz.launch(other_call, ranks=2)
    with pytest.raises(dlviz.DeadlockError, match="rank 0 waits in scatter"):
        dlviz.launch(alone, ranks=2)


# -- wrong arguments -------------------------------------------------------------------------------
NO_TENSORS = (np.ones(4), 1.0, [1.0] * 4, None, "tensor", torch.ones(4).to_sparse(),
              torch.ones(4, device="meta"))  # fmt: skip
NO_NUMBERS = (-1, 1.5, "a", None, [1], True, torch.ones(2), 2**70)
NO_OPERATIONS = ("mean", 1, None, ["sum"], "Sum")
NO_TEXTS = (3, None, ["a"])
NO_SECONDS = ("soon", float("nan"), [1.0], -1)
X = torch.ones(4)
CALLS = {  # method: right arguments, and what is wrong for some of them
    "isend": ({"tensor": X, "dst": 0, "tag": 0}, {}),
    "send": ({"tensor": X, "dst": 0, "tag": 0}, {}),
    "irecv": ({"tensor": X, "src": 0, "tag": 0, "op": "copy"}, {}),
    "recv": ({"tensor": X, "src": 0, "tag": 0, "op": "copy", "deadline": 0.1},
             {"src": (-1, 1.5, "a", [], [5], True, 2**70), "deadline": (*NO_SECONDS[:3], 1j)}),
    "probe": ({"src": 0, "tag": 0, "deadline": 0.1}, {"deadline": (*NO_SECONDS[:3], 1j)}),
    "sendrecv": ({"send": X, "dst": 0, "recv": X, "src": 0, "tag": 0, "op": "copy"}, {}),
    "wait_sent": ({"requests": []}, {"requests": (3, [3], None, "ab")}),
    "broadcast": ({"tensor": X, "src": 0}, {}),
    "reduce": ({"tensor": X, "dst": 0, "op": "sum"}, {}),
    "all_reduce": ({"tensor": X, "op": "sum"}, {}),
    "all_gather": ({"out": torch.ones(8), "tensor": X},
                   {"out": (*NO_TENSORS, [X], [X, 3.0], [X, torch.ones(3)], {})}),
    "reduce_scatter": ({"out": X, "tensor": torch.ones(8), "op": "sum"},
                       {"tensor": (*NO_TENSORS, [X], [X, 3.0], [X, torch.ones(3)], {})}),
    "all_to_all": ({"out": X, "tensor": X}, {"out": (*NO_TENSORS, [X, X])}),
    "gather": ({"tensor": X, "gather_list": [X, X], "dst": 1},
               {"gather_list": (*NO_TENSORS, [X], [X, 3.0], {})}),
    "scatter": ({"tensor": X, "scatter_list": [X, X], "src": 1},
                {"scatter_list": (*NO_TENSORS, [X], [X, 3.0], {})}),
    "broadcast_object": ({"obj": 3, "src": 1}, {}),
    "all_gather_object": ({"object_list": [None] * 2, "obj": 3},
                          {"object_list": (None, 3, [None], "ab")}),
    "split": ({"color": 0, "key": 0},
              {"color": (-1, 1.5, "a", [1], True, 2**70), "key": (1.5, "a", [1], True, 2**70)}),
    "mesh": ({"dp": 2}, {"dp": (0, 3, *NO_NUMBERS)}),
    "lane": ({"name": "side"}, {}),
    "shared": ({"tensor": X}, {"tensor": (*NO_TENSORS[:5], X[::2])}),
    "together": ({"act": print, "needed": ()}, {"act": NO_TEXTS, "needed": (3, [3], "a", ["a"])}),
    "compute": ({"kind": "forward", "name": "a", "seconds": 0.1}, {"seconds": NO_SECONDS}),
    "beside": ({"kind": "forward", "name": "a"}, {}),
    "moving": ({"tensor": X}, {"tensor": (1.5, "x", [1.0])}),
    "moved": ({"tensor": X}, {"tensor": NO_TENSORS}),
    "watch": ({"tensor": X, "name": "buffer"}, {"tensor": (*NO_TENSORS, torch.ones(2, 2).t())}),
    "memory": ({"what": "a", "nbytes": 3}, {"nbytes": NO_SECONDS}),
    "progress": ({"iterable": [1], "name": "bar"}, {"iterable": (3, None)}),
    "agree": ({"op": "barrier", "tensor": None}, {"op": ("all", None)}),
}  # fmt: skip
WRONG = {
    "tensor": NO_TENSORS, "out": NO_TENSORS, "send": NO_TENSORS, "recv": NO_TENSORS,
    "dst": NO_NUMBERS, "src": NO_NUMBERS, "tag": NO_NUMBERS, "op": NO_OPERATIONS,
    "name": NO_TEXTS, "what": NO_TEXTS, "kind": NO_TEXTS,
}  # fmt: skip
FREE = {  # which take anything, or nothing
    "barrier", "span", "label", "begin", "start_line", "hold", "snapshot", "now",
    "collective", "compare_calls", "place_of", "broken",
}  # fmt: skip
ANYTHING = {("compute", "name"), ("beside", "name"), ("agree", "tensor")}


def wrong_calls(comm, method):
    """What each wrong argument of a method is refused with."""
    right, wrong = CALLS[method]
    right = right | {name: 1 - comm.rank for name in ("dst", "src") if name in right}
    if method in ("gather", "scatter", "broadcast_object"):
        right["dst" if method == "gather" else "src"] = comm.rank
    found, wrong = [], wrong | {"obj": [(i for i in ())]}
    for name in right:
        if (method, name) in ANYTHING:
            continue
        for value in wrong.get(name, WRONG.get(name, ())):
            try:
                getattr(comm, method)(**right | {name: value})
            except (TypeError, ValueError) as error:
                ours = traceback.extract_tb(error.__traceback__)[-1].filename.startswith(PACKAGE)
                found.append((name, repr(value), str(error) if ours else f"inside: {error!r}"))
            else:
                found.append((name, repr(value), "accepted"))
    return found


@cache
def refusals():
    run = dlviz.launch(lambda comm: {each: wrong_calls(comm, each) for each in CALLS}, ranks=2)
    assert len(run.trace.messages) == len(run.trace.memory) == 0
    return run.results[0]


@pytest.mark.parametrize("method", CALLS)
def test_every_wrong_argument_of_every_method_gets_a_sentence(method):
    assert refusals()[method]
    for name, value, message in refusals()[method]:
        assert ":" in message and message.endswith("."), (name, value, message)
        assert not message.startswith(("inside", "accepted")), (name, value, message)


def test_the_table_of_wrong_arguments_has_every_public_method():
    methods = {
        name for name, each in inspect.getmembers(Comm, callable) if not name.startswith("_")
    }
    assert methods | {"span", "label"} == CALLS.keys() | FREE
    for method, (right, _) in CALLS.items():
        names = set(inspect.signature(getattr(Comm, method)).parameters) - {"self", "fields"}
        assert method == "mesh" or names - right.keys() <= {"root"}, method


def test_numbers_of_numpy_and_torch_are_ranks_and_tags():
    def worker(comm):
        x, other = torch.tensor([1.0 + comm.rank]), np.int64(1 - comm.rank)
        got = torch.empty(1)
        for _ in range(2):  # the second time the channel is known
            comm.sendrecv(x, other, got, torch.tensor(1 - comm.rank), tag=np.int32(3))
        comm.broadcast(got, np.int64(1))
        return got.item()

    run = dlviz.launch(worker, ranks=2)
    assert run.results == [1, 1]
    assert {*run.trace.messages.tag.tolist()} == {3}


@pytest.mark.parametrize("known", [False, True])
def test_a_wrong_rank_is_refused_also_where_an_equal_number_was_used_before(known):
    def worker(comm):
        if known:
            comm.sendrecv(X, 1 - comm.rank, X.clone(), 1 - comm.rank)
        comm.isend(X, float(1 - comm.rank))

    with pytest.raises(dlviz.RankError, match=r"dst=[01]\.0 is no rank of"):
        dlviz.launch(worker, ranks=2)


def wrong_tensors(comm):
    calls = [
        *(lambda x, name=name: all_reduce(comm, x, name) for name in [*ALGORITHMS, "auto"]),
        *(lambda x, each=each: each(comm, x) for each in ALGORITHMS.values()),
        *(
            lambda x, each=each: each(comm, x)
            for each in (
                tree.reduce, tree.broadcast, tree.gather, tree.scatter, ring.reduce_scatter,
                ring.all_gather, halving_doubling.reduce_scatter, halving_doubling.all_gather,
                direct.all_to_all,
            )
        ),
    ]  # fmt: skip
    found = []
    for call in calls:
        for wrong in NO_TENSORS:
            with pytest.raises((TypeError, ValueError)) as error:
                call(wrong)
            found.append(str(error.value))
    for call in (
        lambda: tree.reduce(comm, X, 2),
        lambda: tree.broadcast(comm, X, -1),
        lambda: ALGORITHMS["parameter_server"](comm, X, server="a"),
        lambda: ALGORITHMS["hierarchical"](comm, X, nodes=3),
        lambda: ALGORITHMS["hierarchical"](comm, X, nodes=[[0], ["a"]]),
        lambda: ALGORITHMS["ring"](comm, X, ["sum"]),
    ):
        with pytest.raises(ValueError) as error:
            call()
        found.append(str(error.value))
    return found


def test_collectives_by_hand_refuse_what_is_no_tensor_before_any_message():
    run = dlviz.launch(wrong_tensors, ranks=2)
    assert len(run.trace.messages) == 0
    for message in run.results[0]:
        assert (
            "not a torch.Tensor: give" in message
            or ": give a dense" in message
            or (": use " in message or ": name " in message)
        ), message


def test_a_mesh_shows_its_axes():
    run = dlviz.launch(lambda comm: repr(comm.mesh(dp=2, pp=1)), ranks=2)
    assert run.results == ["Mesh(dp=2, pp=1)"] * 2

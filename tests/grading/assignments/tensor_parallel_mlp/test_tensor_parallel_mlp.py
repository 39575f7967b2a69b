"""What is no row of wrong.toml: plain torch, other sizes, runs without an end, and rehearsals."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from judging import judged
from programs import held_to_rows
from rows import HandedIn, checks, rows
from torch import nn

from dlviz.grading.assignments.tensor_parallel_mlp import checks as tensor_checks
from dlviz.grading.assignments.tensor_parallel_mlp.checks import CountedSize
from dlviz.grading.assignments.tensor_parallel_mlp.hints import gradients, plain
from dlviz.grading.assignments.tensor_parallel_mlp.run import (
    DIRECTIONS,
    MLPSize,
    MLPStep,
    Parallel,
    Sharded,
)
from dlviz.grading.harness import sandbox
from dlviz.metrics import step_seconds
from dlviz.trace import Trace

# What torch warns of and then refuses: a rank has the filters of its run, here those of pytest.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
globals().update(held_to_rows("tensor_parallel_mlp"))
ROWS = {row.what: row for row in rows("tensor_parallel_mlp")}
SOLUTION = ROWS["the solution"]
TWO = MLPSize(2, 3, 4, 10)


def with_g(*change: str) -> HandedIn:
    return HandedIn("tensor_parallel_mlp", "another g", {"functions": [[*change]]}, {})


def message_text(said) -> str:
    return " ".join(str(said).split())


# -- right at every size ---------------------------------------------------------------------------

RIGHT = pytest.mark.parametrize("row", [row for row in ROWS.values() if not row.loses], ids=str)
OF_THE_MLP = checks("tensor_parallel_mlp")[2:]  # behind those of f and g


def is_right(row, check, sizes):
    report = judged(row.check(check), row.programs(check), sizes)
    assert report.failure is None and report.points == report.most, str(report)


@pytest.mark.slow
@RIGHT
def test_right_programs_are_right_where_nothing_can_be_shared_evenly(row):
    for check in OF_THE_MLP[:-1]:  # neither the hidden width nor y, so that the bytes may differ
        is_right(row, check, [(3, 2, 5, 9)])


@pytest.mark.slow
@pytest.mark.sweep
@RIGHT
def test_a_right_program_is_right_at_every_size(row):
    even = [(n, 2, n * (h - 3), 3 * n) for n in range(2, 6) for h in (4, 5)]
    for check in OF_THE_MLP:
        is_right(row, check, even + [(n, 2, 5, 3 * n) for n in range(1, 6) if check != "bytes"])


def test_the_mlp_that_is_asked_for_is_that_of_torch():
    state, (x, gradient) = TWO.whole(7), TWO.batch(7, 0)
    model = nn.Sequential(nn.Linear(4, 10), nn.GELU(), nn.Linear(10, 4)).double()
    names = dict(zip(state, ("0.weight", "0.bias", "2.weight", "2.bias"), strict=True))
    model.load_state_dict({names[name]: each for name, each in state.items()})
    x.requires_grad_()
    model(x).backward(gradient)
    assert torch.equal(model(x), plain(x, state))
    wanted = [*(p.grad for p in model.parameters()), x.grad]
    for seen, right in zip(gradients(x.detach(), gradient, state).values(), wanted, strict=True):
        torch.testing.assert_close(seen, right, rtol=1e-12, atol=0)


# -- sizes -----------------------------------------------------------------------------------------


def test_what_sizes_have_in_common_is_told():
    def common(passed, failed):
        return MLPSize.in_common([MLPSize(*each) for each in passed], [MLPSize(*failed)])

    divides = common([(2, 3, 4, 8), (3, 2, 6, 9), (1, 2, 3, 4)], (3, 2, 5, 9))
    assert "if the ranks divide the hidden width. Only the inner width is cut" in divides
    assert common([(2, 3, 4, 8), (2, 3, 5, 8)], (3, 2, 5, 9)) == ""
    assert common([(1, 2, 3, 4)], (2, 3, 4, 8)) == ""
    on_two = [CountedSize(2, 3, 4, 10)], [CountedSize(3, 2, 6, 9), CountedSize(4, 2, 4, 12)]
    assert "only on 2 ranks" in MLPSize.in_common(*on_two)
    assert CountedSize.in_common(*on_two) == "", "on 2 ranks other algorithms send as much"


def test_no_part_of_a_wrong_order_has_the_bytes_of_y_at_a_size_that_is_graded():
    """Else f behind up would have points there for an all-reduce of z's gradient."""
    sizes = [MLPSize(*each) for each in tensor_checks.SIZES]
    assert [s for s in sizes if s.ranks > 1 and s.inner // s.ranks == s.hidden] == []


@pytest.mark.slow
def test_one_rank_alone_has_no_points():
    report = judged(SOLUTION.check("outputs"), SOLUTION.programs("outputs"), [(1, 2, 3, 4)])
    assert report.failure is None and report.points == 0


@pytest.mark.slow
def test_a_run_that_never_ends_is_told_when_the_time_is_up_and_not_tried_again(monkeypatch):
    monkeypatch.setattr(sandbox, "SECONDS", 1.0)
    monkeypatch.setattr(sandbox.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    loop = """        import time

        while True:
            try:
                time.sleep(0.01)
            except:
                pass
"""
    row = with_g("        total = x.clone()\n", loop)
    report = judged(row.check("outputs"), row.programs("outputs"))
    assert re.search(r"not ended after 1 s rank 0 is at cell.py:\d+: ", message_text(report))
    assert len(report.failed) == 1 and report.points == 0


# -- to look at ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_rehearsal_of_f_and_g_shows_whose_numbers_are_in_each_sum():
    (f,), (g,) = SOLUTION.programs("f"), SOLUTION.programs("g")
    done = tensor_checks.rehearse_functions(f, g, ranks=3)
    assert repr(done).splitlines() == [
        "f forward: 1, 10 and 100 became 1, 10 and 100",
        "f backward: 1, 10 and 100 became 111, 111 and 111",
        "g forward: 1, 10 and 100 became 111, 111 and 111",
        "g backward: 1, 10 and 100 became 1, 10 and 100",
    ]
    assert done.right
    (mean,) = ROWS["the mean in place of the sum"].programs("f")
    wrong = tensor_checks.rehearse_functions(mean, g, ranks=2)
    assert "f backward: 1 and 10 became 5.5 and 5.5" in repr(wrong) and not wrong.right
    (missing,) = with_g("total = x.clone()", "raise NotImplementedError()").programs("g")
    begun = tensor_checks.rehearse_functions(f, missing, ranks=2)
    assert "f backward: 1 and 10 became 11 and 11" in repr(begun) and not begun.right
    assert "still to be written" in repr(begun)


def rehearsed(what, ranks=4):
    return tensor_checks.rehearse(*ROWS[what].programs("parts"), ranks=ranks)


@pytest.mark.slow
def test_a_rehearsal_shows_products_and_all_reduces_of_a_paced_step():
    done = rehearsed("the solution")
    words = r"4 ranks; rank 0 holds 280 of 1072 numbers and sends 1536 bytes; a step of \d+ ms; the"
    assert done.right and re.match(words, message_text(done)), repr(done)
    assert (done.numbers, done.nbytes, done.all_reduces) == (280, 1536, 2)
    spans = done.trace.spans
    bars = spans[(spans.rank == 2) & np.isin(spans.kind, ["forward", "backward"])]
    assert bars.kind.tolist() == ["forward"] * 2 + ["backward"] * 4
    there, back = bars.name[:2].tolist(), bars.name[2:].tolist()
    assert there == ["4x16·16x8", "4x8·8x16"]  # x W1, z W2
    assert {*back} == {"16x4·4x8", "4x16·16x8", "8x4·4x16", "4x8·8x16"}  # of W2, z, W1, x
    assert np.allclose(bars.end - bars.start, 0.004)
    assert np.allclose(step_seconds(done.trace, "device"), 6 * 0.004 + 2 * 6 * 0.001)

    wrong = rehearsed("*f* without its backward", ranks=2)
    assert "the gradients are not those of one process" in message_text(wrong) and not wrong.right
    kept = rehearsed("stores `state` as an attribute", ranks=2)
    assert "the gradients are those of one process" in message_text(kept) and not kept.right
    stuck = rehearsed("the last rank does not take part", ranks=2)
    assert len(stuck.trace.spans) and "deadlock" in repr(stuck) and not stuck.right


def test_the_bytes_of_a_paced_run_are_those_that_the_paced_clock_has_in_a_phase():
    """There the wall clock of a phase's end may be read before its last message is sent."""
    rank = {"rank": 0, "lane": "compute", "kind": "phase", "step": 0}
    there = {"name": "forward", "start": 0.0, "end": 0.01, "wall_start": 0.0, "wall_end": 0.01}
    back = {"name": "backward", "start": 0.01, "end": 0.02, "wall_start": 0.01, "wall_end": 1}
    message = {"src": 0, "dst": 1, "nbytes": 48, "sent": 0.009, "arrived": 0.01, "received": 0.01}
    message |= {"wall_sent": 0.0102, "wall_received": 0.0103}
    step = MLPStep({}, torch.zeros(1), {}, {}, {"forward": 0.0, "backward": 0.0}, [])
    trace = Trace([rank | there, rank | back], [message], meta={"ranks": 2})
    tried = Parallel(TWO, 0, [Sharded([step])], trace)
    assert [tried.sent(direction, 0).tolist() for direction in DIRECTIONS] == [[48.0], [0.0]]

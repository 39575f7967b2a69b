"""1-bit SGD: what the checks rest on, rehearsals, and the answers of its predictions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from courses import Assignment
from programs import held_to_rows
from rows import HandedIn, checks, rows

from dlviz.grading.assignments.one_bit_sgd import checks as one_bit_checks
from dlviz.grading.assignments.one_bit_sgd.hints import MISTAKES
from dlviz.grading.assignments.one_bit_sgd.model import Coder, code_bytes, decoded, rendered
from dlviz.grading.harness import sandbox

globals().update(held_to_rows("one_bit_sgd"))
ROWS = {row.what: row for row in rows("one_bit_sgd")}
RIGHT = [row for row in ROWS.values() if not row.loses]
GRADIENT = np.array([5.0, 1.0, -2.0, -2.0])
SECOND = GRADIENT + GRADIENT - decoded(GRADIENT, 4)
FORMULAS = {
    "one-bit-code-bytes": 1000 / 8 + 16 * 2 * 4,
    "second-one-bit-code": SECOND[SECOND >= 0].mean(),
    "one-bit-bytes-both-ways": 2 * (4 - 1) * (1024 / 8 + 2 * 2 * 4),
}


def changed(cell, check, *changes):
    return HandedIn("one_bit_sgd", "changed", {cell: [*changes]}, {}).programs(check)


def message(report):
    return " ".join(repr(report).split())


def test_checks_are_worth_18_points():
    each = [ROWS["the solution"].check(name) for name in checks("one_bit_sgd")]
    cells = Assignment("one_bit_sgd").points()
    assert sum(check.points for check in each) == 18 == sum(cells.values()) - 2


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("row", RIGHT, ids=str)
@pytest.mark.parametrize("check", checks("one_bit_sgd"))
def test_a_right_program_is_right_at_every_size(row, check):
    if check in ("encode", "decode", "feedback"):
        sizes = [(n, per) for n in (1, 7, 8, 9, 65) for per in (1, 3, 8, 64)]
    else:
        sizes = [(n, values, 8) for n in range(2, 6) for values in (1, 2, 7, 64)]
    report = row.check(check).grade(*row.programs(check), sizes=sizes)
    assert report.failure is None and report.points == report.most, str(report)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 511, 512, 513, 26_122])
def test_a_code_holds_the_mean_of_each_values_side_and_has_its_closed_forms_bytes(n):
    coder, v = Coder(512), torch.randn(n, dtype=torch.float64)
    code = coder.encode(v)
    assert sum(each.nbytes for each in code) == code_bytes(n, 512)
    assert [each.shape for each in code] == [each.shape for each in coder.empty(n)]
    means = torch.zeros(n, dtype=torch.float64)
    for values, out in zip(v.split(512), means.split(512), strict=True):
        for side in (values < 0, values >= 0):
            out[side] = values[side].mean()
    assert torch.allclose(coder.decode(*code, n), means, rtol=1e-6)
    assert np.array_equal(coder.decode(*code, n), decoded(v.numpy(), 512))
    assert code_bytes(26_122, 512) == 3682


def test_no_two_mistakes_leave_the_same_numbers():
    given = [[np.random.default_rng([i, j]).normal(size=(3, 40)) for j in (0, 1)] for i in range(4)]
    left = {how: np.ravel(rendered(given, 8, how)) for how, _ in MISTAKES}
    hints, right = dict(MISTAKES), np.ravel(rendered(given, 8))
    for how, one in left.items():
        assert not np.allclose(one, right, atol=1e-5), hints[how]
        same = [each for each, other in left.items() if np.allclose(one, other, atol=1e-5)]
        assert same == [how], [hints[each] for each in same]


def test_a_residual_makes_the_sum_of_codes_that_of_the_gradients_less_one_residual():
    given = [[np.random.default_rng(i).normal(size=(3, 40))] for i in range(200)]
    means = sum(step[0] for step in rendered(given, 8))
    wanted = sum(step[0].mean(axis=0) for step in given)
    without = sum(step[0] for step in rendered(given, 8, MISTAKES[0][0]))
    assert np.abs(means - wanted).max() < 10 < np.abs(without - wanted).max()


# -- rehearsals, and runs that do not end ----------------------------------------------------------


@pytest.mark.slow
def test_rehearsals_show_codes_feedback_and_means():
    solution = ROWS["the solution"]
    code = one_bit_checks.rehearse_code(*solution.programs("decode"))
    assert code.right and code.nbytes == 253
    feedback = one_bit_checks.rehearse_feedback(*solution.programs("feedback"))
    assert feedback.right and feedback.decoded[0] == [3, 3, -2, -2] and feedback.decoded[1][0] == 7
    assert "step 1: the code holds 7 -1.67 -1.67 -1.67, the residual is 0 0.667" in message(
        feedback
    )
    run = one_bit_checks.rehearse(*solution.programs("mean"))
    assert run.right and run.nbytes == 864 and len(run.trace.messages) == 384
    wrong = {  # a program, its check, and what is said of it
        "bits inverted": ("decode", "the bits are inverted"),
        "no feedback": ("feedback", "no residual is ever used"),
        "the sum, not divided": ("mean", "this is the sum over"),
        "another rank is late: `send` before `recv` on every rank": ("mean", "deadlock"),
    }
    rehearsals = {
        "decode": one_bit_checks.rehearse_code,
        "feedback": one_bit_checks.rehearse_feedback,
        "mean": one_bit_checks.rehearse,
    }
    for what, (check, words) in wrong.items():
        done = rehearsals[check](*ROWS[what].programs(check))
        assert words in message(done) and not done.right


@pytest.mark.slow
def test_an_encode_that_never_ends_is_not_tried_again_by_the_check_of_decode(monkeypatch):
    monkeypatch.setattr(sandbox, "SECONDS", 1.0)
    monkeypatch.setattr(sandbox.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    endless = changed(
        "encode", "decode", ["upper = v >= 0", "upper = v >= 0\n    while True: pass"]
    )
    report = one_bit_checks.check_decode.grade(*endless)
    assert report.points == 3 and "had not ended after 1 s" in " ".join(str(report).split())

"""ZeRO: what the checks rest on, rehearsals, and the answers of its predictions."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from courses import Assignment, managed
from programs import held_to_rows
from rows import checks, rows
from torch import nn

from dlviz.grading.assignments.zero import checks as zero_checks
from dlviz.grading.assignments.zero.hints import MISTAKES, least, units
from dlviz.grading.assignments.zero.model import EPSILON, RATE, right, trained
from dlviz.grading.assignments.zero.run import BYTES, STEPS, StageSize

globals().update(held_to_rows("zero"))
ROWS = {row.what: row for row in rows("zero")}
RIGHT = [row for row in ROWS.values() if not row.loses]
RANKS, LAYERS, WEIGHTS = 4, 8, 16 * 16 + 16
FORMULAS = {
    "zero-stage-1-held": LAYERS * WEIGHTS * (1 + 2 / RANKS),
    "zero-stage-3-held": LAYERS * WEIGHTS * 3 / RANKS,
    "zero-stage-3-sent": LAYERS * WEIGHTS * 3 * (RANKS - 1) / RANKS,
}
SIZE = StageSize(3, 3, 6, 0.002)


def batches(size):
    ends = size.widths[0], size.widths[-1]
    draw = torch.Generator().manual_seed(0)
    return [
        [
            tuple(torch.randn(2, n, generator=draw, dtype=torch.float64) for n in ends)
            for _ in range(size.ranks)
        ]
        for _ in range(STEPS)
    ]


def test_checks_are_worth_18_points():
    cells = Assignment("zero").points()
    each = [ROWS["the solution"].check(name) for name in checks("zero")]
    assert sum(check.points for check in each) == 18 == sum(cells.values()) - 2


def test_one_process_is_plain_torch_with_all_rows():
    layers = [nn.Linear(*ends, dtype=torch.float64) for ends in pairwise(SIZE.widths)]
    model = nn.Sequential(*(each for layer in layers for each in (layer, nn.Tanh())))[:-1]

    def flat():
        return [nn.utils.parameters_to_vector(each.parameters()) for each in layers]

    begin = [w.detach().clone() for w in flat()]
    adam = torch.optim.Adam(model.parameters(), RATE, eps=EPSILON)
    for step in batches(SIZE):
        x, target = (torch.cat(each) for each in zip(*step, strict=True))
        adam.zero_grad()
        ((model(x) - target) ** 2).sum(1).mean().backward()
        assert nn.utils.clip_grad_norm_(model.parameters(), SIZE.clip) > SIZE.clip
        adam.step()
    found = trained(SIZE.widths, begin, batches(SIZE), SIZE.clip, right)
    assert torch.allclose(torch.cat(found), torch.cat(flat()), rtol=0, atol=1e-7)


def test_no_two_mistakes_leave_the_same_weights():
    made = [right, *(how for how, _ in MISTAKES)]
    left = [
        torch.cat(trained(SIZE.widths, SIZE.begin(1), batches(SIZE), SIZE.clip, how))
        for how in made
    ]
    left += [torch.cat(trained(SIZE.widths, SIZE.begin(1), batches(SIZE), np.inf, MISTAKES[0][0]))]
    for i, one in enumerate(left):
        # a sum that is clipped is the mean that is clipped
        same = [j for j, other in enumerate(left) if torch.allclose(one, other, rtol=0, atol=1e-9)]
        assert same == ([0, 1] if i < 2 else [i]), [hint for _, hint in MISTAKES]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.slow
def test_rehearsals_show_what_the_closed_forms_say(stage):
    names = {"torch": torch}
    exec(managed(Assignment("zero").source)["stage_0"].source.partition("run_0")[0], names)
    program = names["Stage0"] if stage == 0 else ROWS["the solution"].programs(f"bytes_{stage}")[0]
    run, size = zero_checks.rehearse(program, stage), StageSize(stage, 4, 16, even=True)
    assert run.right and run.held == least(size) / BYTES, run
    assert run.held == {0: 6528, 1: 3264, 2: 3264, 3: 1632}[stage]
    norm = 2 * 3 / 4 * (stage > 0)  # an all-reduce of one number
    assert run.sent == pytest.approx((2 + (stage == 3)) * units(size)[1] / BYTES + norm, abs=0.5)


@pytest.mark.slow
def test_a_rehearsal_of_another_stage_says_what_is_missing():
    programs = [ROWS["the solution"].programs(f"memory_{stage}")[0] for stage in (1, 2)]
    shown = [str(zero_checks.rehearse(*each)) for each in zip(programs, (2, 3), strict=True)]
    assert "the whole gradients of all layers" in shown[0] and "not yet right" in shown[0]
    assert "two of three: weights for forward" in shown[1]


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("row", RIGHT, ids=str)
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_right_program_is_right_at_every_size(row, stage):
    for ranks in range(1, 6):
        for width in (3, 8, 16):
            for name in ("weights", "bytes", "memory")[: 2 if width < 16 or ranks < 2 else 3]:
                check = row.check(f"{name}_{stage}")
                report = check.grade(
                    *row.programs(f"{name}_{stage}"), sizes=[(stage, ranks, width)]
                )
                assert report.failure is None, str(report)

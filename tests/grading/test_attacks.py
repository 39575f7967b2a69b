"""Programs that go for the points and not for the task: none gets those of what it attacks."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace

import pytest
from attack_programs import ATTACKS, FRAMES, TRACEBACK

MODULES = {
    "ddp": "ddp_checks",
    "fedavg": "fedavg_checks",
    "halo_exchange": "halo_checks",
    "mesh_3d": "mesh_checks",
    "parameter_server": "parameter_server_checks",
    "placement": "placement_checks",
    "tensor_parallel_mlp": "tensor_checks",
    "zero": "zero_checks",
}
PEEKS = [each for each in ATTACKS if FRAMES in next(iter(each.cells.values()))]


def lost(attack):
    """What each check that it attacks has seen; none of them gives it a point."""
    checks = importlib.import_module(f"dlviz.grading.{MODULES[attack.assignment]}")
    for name, size in attack.sizes.items():
        report = getattr(checks, name).grade(*attack.programs(name), sizes=[size])
        assert report.points == 0 and report.failure is not None, report
        yield report.failure.seen


@pytest.mark.parametrize("attack", [each for each in ATTACKS if each.where == "rank"], ids=str)
def test_an_attack_has_no_point_of_what_it_attacks(attack):
    assert all(re.search(attack.summary, seen) for seen in lost(attack))


@pytest.mark.sweep
@pytest.mark.parametrize("attack", PEEKS, ids=str)
def test_frames_are_not_reached_by_a_traceback_either(attack):
    cells = {name: cell.replace(FRAMES, TRACEBACK) for name, cell in attack.cells.items()}
    for seen in lost(replace(attack, cells=cells)):
        assert re.search("was called: f_back|LookupError", seen)


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_in_a_kernel_an_attack_has_less_than_a_point_more_than_nothing(attack):
    marks = attack.marks()
    assert len(marks) >= 6 and sum(marks.values()) <= attack.most, marks

"""Programs that go for the points and not for the task: none gets those of what it attacks."""

from __future__ import annotations

import importlib

import pytest
from attack_programs import ATTACKS

MODULES = {
    "ddp": "ddp_checks",
    "fedavg": "fedavg_checks",
    "mesh_3d": "mesh_checks",
    "parameter_server": "parameter_server_checks",
    "tensor_parallel_mlp": "tensor_checks",
}


@pytest.mark.parametrize("attack", [each for each in ATTACKS if each.where == "rank"], ids=str)
def test_an_attack_from_a_rank_has_no_point_of_what_it_attacks(attack):
    checks = importlib.import_module(f"dlviz.grading.{MODULES[attack.assignment]}")
    for name, size in attack.sizes.items():
        report = getattr(checks, name).grade(*attack.programs(name), sizes=[size])
        assert report.points == 0 and attack.told in str(report).replace("\n          ", " "), (
            report
        )
        print(report)

"""Two hosts on one machine, as the benchmarks make them (benchmarks/namespaces.py), for tests."""

import os
from pathlib import Path

import pytest

from benchmarks.namespaces import Host, several_hosts, why_not

__all__ = ["Host", "need", "several_hosts", "why_not"]
TESTS = Path(__file__).parents[2]
ENVIRON = {  # of a script on a host
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join(map(str, (TESTS.parent, TESTS / "cluster"))),
}


def need(reason: str) -> None:
    """Skip where two hosts cannot be made; in CI fail."""
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)

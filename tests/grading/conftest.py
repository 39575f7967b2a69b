"""What the tests of assignments share: one course."""

from __future__ import annotations

from pathlib import Path

import pytest
from courses import Assignment


@pytest.fixture(scope="session")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course to which all assignments were released."""
    return Assignment("*").release(tmp_path_factory.mktemp("course"))

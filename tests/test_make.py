"""What `make test` does about tests that fail: it runs up to three once more, by themselves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.sweep]
HERE = Path(__file__).parents[1]
FAILS = """
import pathlib, pytest

@pytest.mark.parametrize("number", range({count}))
def test_fails(number):
    tried = pathlib.Path(f"tried-{{number}}")
    again = tried.exists()
    tried.touch()
    assert again and {good}
"""


@pytest.mark.parametrize(
    ("count", "good", "code", "reruns"),
    [(3, True, 0, True), (1, False, 2, True), (4, True, 2, False)],
)
def test_a_test_that_fails_by_itself_too_fails_make_and_so_do_four(
    tmp_path, count, good, code, reruns
):
    (tests := tmp_path / "tests").mkdir()
    (tests / "test_it.py").write_text(FAILS.format(count=count, good=good))
    (tests / "test_lab.py").write_text("def test_lab(): pass")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(HERE / name, tmp_path)
    made = [f"BIN={Path(sys.executable).parent}", "LABS=tests/test_lab.py"]
    done = subprocess.run(
        ["make", "-o", "style", "test", *made], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert f"{count} failed, 1 passed" in done.stdout, "the first failure stays in sight"
    assert ("\nFailed beside others, so once more" in done.stdout) == reruns

"""The check for leftovers sees what it is there to see."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import conftest
import pytest


def test_a_child_and_a_zombie_and_a_folder_are_leftovers():
    before = conftest.processes()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert [entry.split()[1] for entry in conftest.leftovers(before)] == [str(child.pid)]
    child.kill()
    assert len(conftest.leftovers(before)) == 1, "a zombie is left until somebody waits for it"
    child.communicate()
    assert conftest.leftovers(before) == []
    folder = conftest.SHARED_MEMORY / f"dlviz-{os.getpid()}-test"
    folder.mkdir()
    assert conftest.leftovers(before) == [str(folder)]
    folder.rmdir()


def test_each_file_that_is_to_come_first_is_there():
    files = {path.stem for path in Path(conftest.TESTS).rglob("test_*.py")}
    assert set(conftest.LONGEST) <= files


def test_no_two_modules_of_tests_have_one_name_which_pytest_could_not_import():
    names = Counter(path.name for path in Path(conftest.TESTS).rglob("*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_what_was_there_before_may_have_children():
    others = conftest.processes()
    parent = subprocess.Popen(["sh", "-c", "sleep 60 & wait"])
    try:
        while "sleep" not in dict(map(reversed, conftest.descendants(others))):
            time.sleep(0.01)
        assert conftest.leftovers({*others, parent.pid}) == []
    finally:
        found = conftest.descendants(others)
        (grandchild,) = (pid for pid, name in found if name == "sleep")
        os.kill(grandchild, 9)
        parent.wait()


def test_a_child_of_the_forkserver_is_a_leftover_and_the_forkserver_is_not():
    for _ in range(2):  # the second time the forkserver was there before
        before = conftest.processes()
        context = multiprocessing.get_context("forkserver")
        process = context.Process(target=time.sleep, args=(60,))
        process.start()
        try:
            assert [e.split()[1] for e in conftest.leftovers(before)] == [str(process.pid)]
        finally:
            process.kill()
            process.join()


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail), ("", pytest.skip)])
def test_a_missing_browser_fails_in_ci_and_skips_elsewhere(monkeypatch, ci, outcome):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(conftest.shutil, "which", lambda name: None)
    with pytest.raises(outcome.Exception, match="install chromium"):
        next(conftest.browser.__wrapped__())


def test_the_browser_opens_a_page(browser):
    page = browser.new_page()
    page.set_content("<p id=a>4 ranks</p>")
    assert page.text_content("#a") == "4 ranks"
    page.close()

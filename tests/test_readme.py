"""What the README names exists, and its commands run."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import webbrowser
from pathlib import Path

import plotly.io
import pytest

from dlviz.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PAGES += sorted((ROOT / "data").rglob("README.md"))
PAGES += [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "labs" / "glossary.md"]

SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.S)
COMMANDS = [  # the indented lines, without their comments
    line.partition("#")[0].split() for line in re.findall(r"^    (\S.*)$", README, re.M)
]
COMMANDS = [words for words in COMMANDS if words[0] in ("make", "dlviz")]


def links(page: Path) -> list[str]:
    found = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    return [link.partition("#")[0] for link in found if "://" not in link and link[0] != "#"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_links_to_is_committed(page):
    git = ["git", "ls-files", "--error-unmatch"]
    for link in links(page):
        assert (page.parent / link).exists(), link
        if (ROOT / ".git").exists():
            done = subprocess.run([*git, link], cwd=page.parent, capture_output=True, text=True)
            assert done.returncode == 0, f"{link} is not committed"


def test_the_first_screen_holds_what_it_is_a_picture_and_two_commands():
    screen = "\n".join(README.splitlines()[:12])
    assert re.search(r"!\[.+\]\(docs/ring\.gif\)", screen)
    assert [words for words in COMMANDS if " ".join(words) in screen] == [
        ["make", "lab"],
        ["make", "test"],
    ]


@pytest.mark.parametrize("page", PAGES[:2], ids=lambda page: page.name)
def test_make_targets_that_a_page_names_exist(page):
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.M))
    named = set(re.findall(r"(?:`|^    )make ([a-z]+)", page.read_text(), re.M))
    assert {"lab", "test"} & named and named <= targets
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.M)
    assert phony and set(phony[1].split()) == targets


def test_files_that_the_readme_names_exist():
    names = re.findall(r"`((?:\d\d_)?[a-z_/]+\.(?:ipynb|yml|toml|md|py))`|-f (\S+\.yml)", README)
    named = [lab or file for lab, file in names]
    assert named
    for name in named:
        assert (ROOT / name).exists() or (ROOT / "labs" / name).exists(), name


def test_the_loop_is_short_small_and_has_a_still_of_its_size():
    from PIL import Image

    file, frames = ROOT / "docs" / "ring.gif", []
    with Image.open(file) as loop, Image.open(file.with_suffix(".png")) as still:
        assert loop.info["loop"] == 0 and loop.size == still.size
        for number in range(loop.n_frames):  # pyright: ignore[reportAttributeAccessIssue]
            loop.seek(number)
            assert 1000 <= loop.info["duration"] <= 3000
            frames.append(loop.convert("RGB").tobytes())
    assert len(set(frames)) == len(frames) == 1 + 6  # the start, and a ring's rounds on four ranks
    assert file.stat().st_size < 1.5e6


def test_ci_runs_the_readmes_test_command():
    script = (ROOT / ".ci" / "run").read_text()
    assert script.rstrip().splitlines()[-1] == "make test"
    assert "set -euo pipefail" in script and os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.slow
@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_prints_what_the_readme_says(snippet, tmp_path, monkeypatch, capsys):
    file = tmp_path / "snippet.py"
    file.write_text(snippet)
    said = re.findall(r"^print\(.*?\)  # (.*)$", snippet, re.M)
    monkeypatch.setattr(plotly.io.renderers, "default", "json")  # show() opens no browser
    runpy.run_path(str(file), run_name="__main__")  # the fork server has loaded torch
    assert said and capsys.readouterr().out.splitlines()[: len(said)] == said


@pytest.mark.slow
@pytest.mark.parametrize(
    "short",
    [
        pytest.param(True, id="few steps"),
        pytest.param(False, id="their own", marks=pytest.mark.sweep),
    ],
)
def test_the_commands_do_what_the_readme_says(short, tmp_path, monkeypatch, capsys):
    commands = [words for words in COMMANDS if words[0] == "dlviz"]
    assert [words[1] for words in commands] == [*["run"] * 8, "show", "doctor"]
    monkeypatch.chdir(tmp_path)
    opened = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", lambda address: not opened.append(address))
    for words in commands:  # the fork server loads torch once for all
        few = ["--rounds" if "federated" in words else "--steps", "2"]
        assert main([*words[1:], *(few if short and words[1] == "run" else [])]) == 0, words
        assert capsys.readouterr().out
    assert (tmp_path / "trace.json.gz").exists() and opened


def test_the_machine_that_the_readme_launches_on_exists():
    import dlviz

    assert "machine=dlviz.machine.classroom(4)" in README
    assert dlviz.machine.classroom(4).ranks == 4

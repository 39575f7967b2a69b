"""What every lab has, read from its file: open predictions, an ending, further reading."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

LABS = sorted((Path(__file__).parents[2] / "labs").glob("*.ipynb"))
GLOSSARY = LABS[0].with_name("glossary.md")
WIDGETS = GLOSSARY.parents[1] / "dlviz" / "widgets"
TEACHING = GLOSSARY.parents[1] / "docs" / "teaching" / "README.md"


def sources(path: Path, kind: str) -> list[str]:
    return [c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == kind]


@pytest.fixture(params=LABS, ids=lambda path: path.stem)
def lab(request) -> Path:
    return request.param


def test_the_lecturers_table_holds_each_lab_with_the_minutes_of_its_parts():
    text = TEACHING.read_text()
    rows = re.findall(r"^\| `(\d\w+)` \| .* \| (\d+) \| \[lab", text, re.M)
    minutes = {path.stem: sum(int(m) for _, m in parts_of(path)) for path in LABS}
    assert {name: int(row) for name, row in rows} == minutes and len(rows) == len(minutes) > 9
    least, most = min(minutes.values()), max(minutes.values())
    assert f"{len(rows)} labs of {least} to {most} minutes" in text


def parts_of(path: Path) -> list[tuple[str, str]]:
    """Number and minutes of each part, as the lab's own table has them."""
    return re.findall(r"^\| (\d+)\. .* \| (\d+) \|$", sources(path, "markdown")[0], re.M)


def test_each_part_of_a_lab_is_in_its_table(lab):
    parts = parts_of(lab)
    assert [int(number) for number, _ in parts] == [*range(1, len(parts) + 1)]
    headings = re.findall(r"^## (\d+)\. (.*)$", "\n".join(sources(lab, "markdown")), re.M)
    assert [int(number) for number, _ in headings] == [*range(1, len(parts) + 1)]


def test_each_objective_has_a_question_at_the_end_and_an_answer(lab):
    first, *_, last = sources(lab, "markdown")
    objectives = re.findall(r"^\d+\. .*$", first.partition("you can**")[2], re.M)
    questions = re.findall(r"^<details><summary>(\d)\. .*\?</summary>.+</details>$", last, re.M)
    assert len(objectives) == 5 and questions == list("12345")


def test_a_lab_ends_with_what_was_seen_and_with_where_to_read_on(lab):
    last = sources(lab, "markdown")[-1]
    headings = re.findall(r"^## (.*)$", last, re.M)
    assert headings == ["What you have seen", "Read on", "What this lab leaves out"]
    read = last.partition("## Read on")[2].partition("## What this lab")[0]
    assert len(re.findall(r"^- .*(?:19|20)\d\d", read, re.M)) >= 3, "sources with their years"
    assert 'dlviz.grading.report("your name")' in last


def linked(text: str) -> list[str]:
    """Where links lead, but for those to other sites."""
    return [t for t in re.findall(r"\]\(([^)]+)\)", text) if not t.startswith("https://")]


def astray(targets: list[str]) -> list[str]:
    """Those that JupyterLab, whose root is labs/, cannot open."""
    root = GLOSSARY.parent
    paths = {target: (root / target).resolve() for target in targets}
    return [t for t, path in paths.items() if not (path.exists() and path.is_relative_to(root))]


def test_links_of_a_lab_lead_to_files_that_there_are(lab):
    targets = linked("\n".join(sources(lab, "markdown")))
    assert "glossary.md" in targets and any(t.endswith(".ipynb") for t in targets)
    assert astray(targets) == []
    others = {other.name for other in LABS} - {lab.name}
    assert others & {*targets}, "another lab is linked"


def test_links_of_the_glossary_lead_to_files_below_the_labs():
    assert astray(linked(GLOSSARY.read_text())) == []
    assert astray(["glossary.md", "../CONTRIBUTING.md", "none.md"]) == [
        "../CONTRIBUTING.md",
        "none.md",
    ]


def code_alone(path: Path) -> str:
    """A module of a widget without its comments and docstrings."""
    text = path.read_text()
    if path.suffix == ".js":
        return re.sub(r"(?s)/\*.*?\*/|//[^\n]*", "", text)
    return re.sub(r'(?s)""".*?"""|#[^\n]*', "", text)


def test_what_readers_see_is_plain_english():
    notebooks = [*LABS, *GLOSSARY.parent.glob("assignments/*/*.ipynb")]
    texts = {path: "\n".join(sources(path, "markdown")) for path in notebooks}
    texts[GLOSSARY] = GLOSSARY.read_text()
    modules = [path for kind in ("*.py", "*.js") for path in WIDGETS.rglob(kind)]
    texts |= {path: code_alone(path) for path in modules}
    unclear = re.compile(r"\b(here stands|which was|what belongs|one go)\b", re.I)
    assert [(path.name, *unclear.findall(text)) for path, text in texts.items()
            if unclear.search(text)] == []  # fmt: skip


def test_no_prediction_is_filled_in_and_each_is_compared(lab):
    code = "\n".join(sources(lab, "code"))
    made = re.findall(r'^(\w+) = predict\("([^"]+)", (.+?)(?:, "[^"]+")?\)$', code, re.M)
    assert len(made) == code.count("predict(") and len(made) >= 2
    for name, question, value in made:
        assert value == "...", question
        assert f"\n{name}.compare(" in code, question


def test_what_a_cell_checks_is_its_tag_and_no_line_of_its_code(lab):
    cells = nbformat.read(lab, as_version=4).cells
    assert not any("NBVAL" in cell.source for cell in cells)
    tagged = [c for c in cells if "nbval-check-output" in c.metadata.get("tags", ())]
    assert tagged and all(cell.cell_type == "code" for cell in tagged)
    # A stored lab shows an example guess, a run without one says that nothing was predicted.
    assert not [cell.source for cell in tagged if ".compare(" in cell.source]

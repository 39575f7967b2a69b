"""What all assignments have: results that open for a right program alone, a way to their labs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest
from courses import ASSIGNMENTS, STUDENTS, Assignment

NAMES = sorted(path.name for path in (ASSIGNMENTS / "source").iterdir())
LABS = STUDENTS.parent


def opened(code: str) -> list[tuple[str, bool]]:
    """Each call of `compare`, and whether it is made only where something is `right`."""
    found = []

    def look(node: ast.AST, right: bool) -> None:
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".compare"):
            found.append((ast.unparse(node), right))
        guarded = []
        if isinstance(node, ast.If | ast.IfExp):
            parts = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
            both = isinstance(getattr(node.test, "op", ast.And()), ast.And)
            if both and any(ast.unparse(part).endswith(".right") for part in parts):
                guarded = node.body if isinstance(node.body, list) else [node.body]
        for child in ast.iter_child_nodes(node):
            look(child, right or child in guarded)

    look(ast.parse(code), False)
    return found


def test_the_check_sees_what_opens_a_result():
    assert opened("a.compare(1) if run.right else a") == [("a.compare(1)", True)]
    assert opened("a.compare(1) if run.right and n else a") == [("a.compare(1)", True)]
    assert opened("if run.right:\n    a.compare(1)\na") == [("a.compare(1)", True)]
    for code in (
        "a.compare(1)",
        "a if run.right else a.compare(1)",
        "a.compare(1) if run.right or n else a",
        "a.compare(1) if seen else a",
    ):
        assert opened(code) == [("a.compare(1)", False)]


@pytest.mark.parametrize("name", NAMES)
def test_a_result_opens_for_a_program_that_is_right(name):
    cells = [cell.source for cell in Assignment(name).source.cells if cell.cell_type == "code"]
    calls = [call for source in cells for call in opened(source)]
    assert len(calls) >= 2 and [call for call, right in calls if not right] == []


@pytest.mark.parametrize("name", NAMES)
def test_an_assignment_ends_with_the_sum_of_its_checks_and_how_to_hand_in(name):
    assignment = Assignment(name)
    by_checks = sum(assignment.points().values()) - 2  # part 6
    last = assignment.notebook(STUDENTS).cells[-1]
    assert last.source.endswith(f"dlviz.grading.total({by_checks:g})")
    assert last.metadata.nbgrader.locked and not last.metadata.nbgrader.grade


def test_neither_a_wheel_nor_a_source_archive_nor_the_labs_hold_a_solution(tmp_path):
    root = ASSIGNMENTS.parent
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", tmp_path]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    (listed,) = tmp_path.glob("*.egg-info/SOURCES.txt")
    shipped = [root / name for name in listed.read_text().splitlines() if ".egg-info" not in name]
    assert root / "dlviz/grading/harness/judge.py" in shipped
    assert [path for path in shipped if path.is_relative_to(ASSIGNMENTS)] == []
    handed_out = [path for path in LABS.rglob("*.ipynb") if ".ipynb_checkpoints" not in str(path)]
    texts = {path: path.read_bytes() for path in [*shipped, *handed_out] if path.is_file()}
    assert [path for path, text in texts.items() if b"### BEGIN " + b"SOLUTION" in text] == []


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_from_the_students_copy_to_labs(name):
    text = "\n".join(cell.source for cell in Assignment(name).notebook(STUDENTS).cells)
    links = re.findall(r"\]\(([^)]+\.ipynb)\)", text)
    paths = [(STUDENTS / name / link).resolve() for link in links]
    assert paths and [path for path in paths if not path.exists()] == []
    assert {path.parent for path in paths} == {LABS}
    assert re.search(r"\]\(\S+\.ipynb\)\.\n\n\*Text: CC BY", text), "at the end"


def test_a_feedback_page_has_lines_between_the_cells_of_its_tables():
    from nbformat.v4 import new_markdown_cell, new_notebook
    from nbgrader.converters import GenerateFeedback
    from nbgrader.coursedir import CourseDirectory
    from nbgrader.preprocessors import GetGrades
    from traitlets.config.loader import PyFileConfigLoader

    config = PyFileConfigLoader("nbgrader_config.py", str(ASSIGNMENTS)).load_config()
    converter = GenerateFeedback(coursedir=CourseDirectory(), config=config)
    exporter = converter.exporter_class(config=converter.config)
    first, *others = converter.preprocessors
    assert first is GetGrades, "reads the gradebook, which is not here"
    for each in others:
        exporter.register_preprocessor(each)
    lab = new_notebook(cells=[new_markdown_cell("| part | minutes |\n| --- | --- |\n| 1 | 5 |")])
    about = {"notebook": "ring", "score": 0, "max_score": 0, "late_penalty": 0}
    page, _ = exporter.from_notebook_node(lab, resources={"nbgrader": about})
    style = page[: page.index("<body>")]
    assert re.search(r"\.rendered_html th, \.rendered_html td \{ border: 1px solid", style)
    assert re.search(r"padding: [\d.]+em [\d.]+em \}", style)
    assert re.search(r'rendered_html">\s*<table>', page), "and these are the page's tables"

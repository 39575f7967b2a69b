"""Write what students say and what to ask into the lecturers' pages: `make teaching`.

Of predictions both stand in dlviz/grading/questions/, in the order of the pages' headings; of
assignments in tests/grading/assignments/, beside the programs that show each misconception.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from dlviz.grading.questions import Question, by_lab

PAGES = Path(__file__).parent
ROOT = PAGES.parents[1]
QUOTED = re.compile(  # what students say, what to ask, and what that would show, in brackets
    r"\*They say:\*\s.*?\s\*Ask:\*\s[^?]*\?(?:\s\([^()]*(?:\([^()]*\)[^()]*)*\))?", re.S
)


def written(page: str, questions: tuple[Question, ...]) -> str:
    """The page with what its questions' files say. Raises ValueError for a page that has another
    number of predictions, or one without a place for it."""
    head, *sections = re.split(r"^(?=###? )", page, flags=re.M)
    asked = iter(questions)
    for n, section in enumerate(sections):
        if not section.partition("\n")[0].endswith("(predict)"):
            continue
        question = next(asked, None)
        if question is None or not QUOTED.search(section):
            raise ValueError(f"no question's words fit here: {section.partition(chr(10))[0]}")
        quoted = f"*They say:* {question.they_say} *Ask:* {question.ask}"
        sections[n] = QUOTED.sub(lambda _, text=quoted: text, section, count=1)
    if left := [each.id for each in asked]:
        raise ValueError(f"these questions have no heading that ends with (predict): {left}")
    return "".join([head, *sections])


def with_tables(page: str, tables: dict[str, str]) -> str:
    """The page on assignments with the table of each one's misconceptions."""
    for name, table in tables.items():
        place = rf"(^## `{name}`: .*?^### Common misconceptions\n\n)(?:\|[^\n]*\n)+"
        page = re.sub(place, lambda found, own=table: f"{found[1]}{own}\n", page, flags=re.M | re.S)
    return page


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "grading"))
    from rows import NAMES, misconceptions

    page = ROOT / "assignments" / "README.md"
    tables = {name: misconceptions(name) for name in NAMES}
    page.write_text(with_tables(page.read_text(encoding="utf-8"), tables), encoding="utf-8")
    labs = by_lab()
    for path in sorted(PAGES.glob("[0-9]*.md")):
        text = path.read_text(encoding="utf-8")
        path.write_text(written(text, labs[path.stem.partition("_")[0]]), encoding="utf-8")


if __name__ == "__main__":
    main()

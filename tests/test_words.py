"""dlviz is written in plain words and the field's terms: `WORDS` lists what is not written."""

from __future__ import annotations

import io
import itertools
import json
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

WORDS = {  # pattern: what to write instead, and an example of what is found
    "told|untold": ("says, reports, receives; a summary, a remark", "told_of = 1"),
    "(?<!-)ways?": ("method, direction, path, means; or: how", "wayOfBytes"),
    "kept": ("saved (activations), stored, held; stays", "what is kept"),
    "letters?(?! spacing)": ("character, symbol, key, kind (of F, B, I, W)", "LETTERS_WIDE"),
    "envelopes?": ("message header", "readEnvelope"),
    "posted (waits?|i?sends?)": ("started, waiting, registered", "a posted wait"),
    "visits?": ("stage pass, computation", "stage_visits"),
    "stretch(es)?": ("interval, period, segment", "a stretch of time"),
    "bears?|bore|borne": ("carry, have, contain, hold, tolerate", "it bears a number"),
    "(come|comes|came|coming) to (rest|its end)": (
        "settle, converge, stop, finish",
        "a run comes\n    # to rest",
    ),
    "(that|which) (is|are) none": ("an invalid ..., an unknown ...", "a value which\n * is none"),
    "(is|are) none of (its?|them|the|those)": (
        "is not one of, does not belong to",
        "is none of its level",
    ),
}
ALLOWED = """a posted receive, receives are posted; a keyboard, a benchmark, a forbearing board;
two-way, halfway, always, away, gateway; letterSpacing, a newsletter; keep, keeps; tell, tells;
revisited; comes to 8 ms, the rest; none of them; that is nonetheless so; https://x.org/told/way"""

FORMER = {  # file: words in it that are names which users have, and which go on working
    "dlviz/parallel/data/train.py": {"way"},
    "dlviz/parallel/moved.py": {"kept"},
    "dlviz/parallel/update_rules/rule.py": {"kept"},
    "dlviz/models/storage.py": {"kept"},  # a column of its table
    "dlviz/viz/charts/storage.py": {"kept"},
    # a control of two explorers
    "dlviz/widgets/scaling.py": {"way"},
    "dlviz/widgets/consistency/explorer.py": {"way"},
    # names of checks, which reports that were handed in hold
    "dlviz/grading/assignments/ddp/checks.py": {"way"},
    "dlviz/grading/assignments/one_f_one_b/checks.py": {"comes to its end"},
    "dlviz/grading/assignments/ring_all_reduce/checks.py": {"way"},
    "dlviz/grading/assignments/tensor_parallel_mlp/checks.py": {"way"},
    "dlviz/grading/predictions/hand_in.py": {"comes to its end", "letter"},
    "assignments/source/one_f_one_b/one_f_one_b.ipynb": {"comes to its end"},
    "labs/assignments/one_f_one_b/one_f_one_b.ipynb": {"comes to its end"},
}
FORMER_NAMES = r"\bkept_(activations|by_layer|tensors)\b"  # of functions, wherever they are

PATTERNS = {pattern: re.compile(rf"\b({pattern})\b") for pattern in WORDS}


def found(text: str) -> Iterator[tuple[str, str, str]]:
    """For each private word of a piece of text its pattern, the word, and the words around it."""
    text = re.sub(rf"{FORMER_NAMES}|https?://\S+|\\[a-z]|\bNone\b", " ", text)
    text = re.sub(r"(?<=[a-z\d])(?=[A-Z])|_", " ", text)  # the parts of a name
    text = re.sub(r"[\s\"'`*#/]+", " ", text).lower()
    for pattern, compiled in PATTERNS.items():
        for match in compiled.finditer(text):
            around = text[max(match.start() - 30, 0) : match.end() + 30].strip()
            yield pattern, match[0], around


def patterns(pieces: Iterator[tuple[int, str]]) -> set[str]:
    return {pattern for _, piece in pieces for pattern, *_ in found(piece)}


def of_python(text: str) -> Iterator[tuple[int, str]]:
    """The names, strings and comments, each with its line; those of several lines as one."""
    worded = tokenize.NAME, tokenize.STRING, tokenize.COMMENT
    worded += (getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING),)
    blank = tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    for kind, same in itertools.groupby(
        (token for token in tokens if token.type not in blank), key=lambda token: token.type
    ):
        run = list(same)
        if kind in worded:
            yield run[0].start[0], " ".join(token.string for token in run)


JAVASCRIPT = re.compile(
    r"/\*.*?\*/|//[^\n]*(?:\n\s*//[^\n]*)*"  # comments
    r'|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|`(?:[^`\\]|\\.)*`'  # strings
    r"|[A-Za-z_$][\w$]*",  # names
    re.S,
)


def of_javascript(text: str) -> Iterator[tuple[int, str]]:
    """The names, strings and comments, each with its line."""
    for match in JAVASCRIPT.finditer(text):
        yield 1 + text.count("\n", 0, match.start()), match[0]


def of_markdown(text: str) -> Iterator[tuple[int, str]]:
    """The paragraphs, each with its line; of a table the rows."""
    for match in re.finditer(r"^\|[^\n]*|(?:^(?!\|)[^\n]+\n?)+", text, re.M):
        yield 1 + text.count("\n", 0, match.start()), match[0]


def of_notebook(text: str) -> Iterator[tuple[int, str]]:
    """The markdown cells, each with its number."""
    for number, cell in enumerate(json.loads(text)["cells"]):
        if cell["cell_type"] == "markdown":
            yield number, "".join(cell["source"])


READERS = {".py": of_python, ".js": of_javascript, ".md": of_markdown, ".ipynb": of_notebook}
CODE = "dlviz/*.py", "dlviz/*.js"
NOTEBOOKS = "labs/*.ipynb", "assignments/*.ipynb"
PAGES = "docs/*.md", "labs/*.md", "README.md", "CONTRIBUTING.md", *NOTEBOOKS
LISTED = subprocess.check_output(["git", "ls-files", *CODE, *PAGES], cwd=ROOT, text=True).split()


def part(file: str) -> str:
    return "/".join(file.split("/")[: 2 if file.startswith("dlviz/") else 1])


@pytest.mark.parametrize("where", sorted({*map(part, LISTED)}))
def test_no_private_words(where):
    faults = [
        f"{file}:{place}: {word!r} in ... {around} ...: {WORDS[pattern][0]}"
        for file in LISTED
        if part(file) == where
        for place, piece in READERS[Path(file).suffix]((ROOT / file).read_text(encoding="utf-8"))
        for pattern, word, around in found(piece)
        if word not in FORMER.get(file, ())
    ]
    assert not faults, "\n".join(["these words have plainer ones:", *faults])


@pytest.mark.parametrize("pattern", WORDS)
def test_each_pattern_is_seen_and_its_neighbours_are_not(pattern):
    assert pattern in {seen for seen, *_ in found(WORDS[pattern][1])}
    assert pattern not in {seen for seen, *_ in found(ALLOWED)}


def test_names_strings_comments_and_pages_are_read():
    told, ways, kept, _, _, _, _, stretch, *_, none = WORDS
    python = 'kept = f"a {way}"  # told\n# it is\n# none of its\n"""x\nstretch"""\n'
    assert patterns(of_python(python)) == {told, ways, kept, stretch, none}
    script = "/* it is\n * none of its */ const sentWay = 'told' + `${kept}`; // a stretch\n"
    assert patterns(of_javascript(script)) == {told, ways, kept, stretch, none}
    page = "one\nkept\n\n| a | b |\n| told | way |\n"
    assert [line for line, piece in of_markdown(page) if [*found(piece)]] == [1, 5]
    cells = [{"cell_type": kind, "source": ["kept"]} for kind in ("code", "markdown")]
    assert [number for number, _ in of_notebook(json.dumps({"cells": cells}))] == [1]

"""The file to hand in, and the page on a class's files: figures by geometry, names as text."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from statistics import median
from types import ModuleType
from unittest.mock import patch

import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter

import dlviz.grading
from dlviz import cli
from dlviz.grading import class_report, predict, report, total
from dlviz.grading.predictions import hand_in, prediction_file
from dlviz.grading.predictions.class_page import BAR, HIGH, MARGIN, WIDTH, figure, hand_ins
from dlviz.grading.predictions.predict import _made
from dlviz.grading.questions import by_lab, lab_of

TITLES = (
    "Lab 00",
    "Lab 02",
    "Assignment: ring all-reduce",
    "Assignment: DDP",
    "Assignment: parameter server",
    "Assignment: 1F1B",
)
RING = "messages of a ring all-reduce, 4 ranks"
SHARE = "share of the time in which a rank computes"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(prediction_file, "file", tmp_path / "predictions.json")
    monkeypatch.chdir(tmp_path)
    start_over()
    yield tmp_path
    start_over()


def start_over():
    _made.clear()
    hand_in._checks.clear()
    if prediction_file.file is not None:
        prediction_file.file.unlink(missing_ok=True)


def test_a_report_holds_predictions_and_checks(folder):
    predict(RING, 12, "messages").compare(24)
    predict("unanswered", ...).compare(3).open()
    predict("spoilt", ...).compare(4).open()
    predict("spoilt", 4)
    predict("unopened", 0, "ms")
    hand_in.record_check("every rank ends with the sum", 1, 3)
    hand_in.record_check("every rank ends with the sum", 3, 3)
    made = report("Ada Lovelace ")
    document = json.loads((folder / "dlviz-report-ada-lovelace.json").read_text())
    assert made.file == Path("dlviz-report-ada-lovelace.json") and made.document() == document
    assert (document["format"], document["name"]) == (hand_in.FORMAT, "Ada Lovelace")
    ring, unanswered, spoilt, unopened = document["predictions"]
    assert (ring["lab"], ring["predicted"], ring["measured"]) == ("00", 12, 24)
    assert (ring["unit"], ring["factor"], ring["second"]) == ("messages", 2, None)
    assert datetime.fromisoformat(ring["made"]) <= datetime.fromisoformat(ring["opened"])
    assert (unanswered["predicted"], unanswered["measured"]) == (None, 3)
    assert (spoilt["predicted"], spoilt["second"]) == (None, 4)
    assert unopened["measured"] is None and unopened["lab"] == ""
    assert [(c["what"], c["points"], c["most"]) for c in document["checks"]] == [
        ("every rank ends with the sum", 3, 3)
    ]


def test_what_other_notebooks_of_the_folder_keep_is_handed_in_too():
    predict("of lab 00", 1).compare(1)
    _made.clear()
    predict("of lab 02", 2)
    questions = [each["question"] for each in report("Ada").document()["predictions"]]
    assert questions == ["of lab 02", "of lab 00"]


@pytest.mark.parametrize("name", [None, ...])
def test_without_a_name_the_report_is_shown_and_not_written(folder, name):
    predict(RING, 12, "messages").compare(24)
    made = report(name)
    assert made.file is None and not list(folder.glob("dlviz-*"))
    assert "type your name" in repr(made) and RING in repr(made)
    assert "type your name" in made._repr_html_()


def test_what_is_shown_names_the_file_and_each_number():
    predict(RING, 12, "messages").compare(24)
    predict("<b>bold</b>", ...).compare(3)
    predict("late", ...).compare(3).open()
    predict("late", 5)
    hand_in.record_check("in flight: at most <p>", 1.5, 2)
    made = report("Ada")
    for shown in (" ".join(repr(made).split()), made._repr_html_()):
        assert "dlviz-report-ada.json" in shown and RING in shown
        assert "12 messages" in shown and "24 messages" in shown and "2.00" in shown
        assert "1.5 of 2" in shown
    assert "lab 00  messages of a ring" in repr(made).replace("\n", " ")
    assert "<b>bold" not in made._repr_html_() and "&lt;b&gt;bold" in made._repr_html_()
    assert ">5</td>" in made._repr_html_()  # the second attempt


def test_a_total_has_the_points_of_all_checks_what_is_lost_and_how_to_hand_in():
    hand_in.record_check("f: adds", 3, 3)
    hand_in.record_check("g: <adds>", 1, 2)
    hand_in.record_check("g: <adds>", 1.5, 2)
    part = total(18)
    assert repr(part).startswith(
        "4.5 of 18 points by the checks. Checks worth 13 have not run: Run, Run All Cells.\n"
        "1.5 of 2  g: <adds>\n"
    )
    for shown in (" ".join(repr(total(5)).split()), total(5)._repr_html_()):
        assert "4.5 of 5 points by the checks." in shown and "not run" not in shown
        assert "f: adds" not in shown and "save this notebook (Ctrl+S)" in shown
    assert "g: &lt;adds&gt;" in part._repr_html_()


def test_checks_are_known_to_a_module_that_is_loaded_anew(monkeypatch):
    """As graded cells do, also where `%run` put another namespace in place of the notebook's."""
    hand_in.record_check("adds", 3, 3)
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    anew = importlib.util.module_from_spec(
        importlib.util.find_spec("dlviz.grading.predictions.hand_in")
    )
    with patch.dict(sys.modules, {anew.__name__: anew}):
        anew.__spec__.loader.exec_module(anew)
        assert repr(anew.total(3)).startswith("3 of 3 points")


def test_the_points_of_a_check_are_a_number_for_nbgrader_and_of_so_many_on_a_page():
    for points, text, shown in ((2.25, "2.25", "2.25 of 3 points"), (3, "3", "3 of 3 points")):
        data, _ = DisplayFormatter().format(hand_in.Points(points, 3))
        assert (data["text/plain"], data["text/html"]) == (text, shown)
    page = {"text/plain": "2.25", "text/html": "2.25 of 3 points"}
    from nbgrader.utils import get_partial_grade  # where it is used: it takes seconds to load

    assert get_partial_grade({"data": page}, 3) == 2.25


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("Élodie Ångström", "élodie-ångström"),
        ("../../etc/passwd", "etc-passwd"),
        ("李雷", "李雷"),
        ("x" * 300, "x" * 60),
        ("O'Neil, Jr.", "o-neil-jr"),
    ],
)
def test_any_name_makes_a_file_in_this_folder(folder, name, file):
    assert report(name).file == Path(f"dlviz-report-{file}.json")
    assert (folder / f"dlviz-report-{file}.json").exists()


@pytest.mark.parametrize("name", ["", "  ", "123", "-_-"])
def test_a_name_without_a_letter_is_refused(folder, name):
    with pytest.raises(ValueError, match="has no letter: write your name"):
        report(name)
    assert not list(folder.glob("dlviz-*"))


def test_a_check_that_was_run_is_in_the_report():
    from dlviz.grading.assignments.one_f_one_b import checks as pipeline_checks

    def gpipe(rank, ranks, microbatches):
        yield from (f"{kind}{i}" for kind in "FB" for i in range(microbatches))

    points = pipeline_checks.check_in_flight(gpipe, sizes=[(3, 7)])
    (noted,) = report().checks
    assert noted.what == f"gpipe: {pipeline_checks.check_in_flight.what}"
    assert (noted.points, noted.most) == (points, pipeline_checks.check_in_flight.points)


def test_report_is_the_function_whatever_was_imported_before():
    from dlviz.grading import ring_checks  # noqa: F401

    assert callable(dlviz.grading.report) and dlviz.grading.report is report


# -- the figure ------------------------------------------------------------------------------------
RANDOM = np.random.default_rng(1)
SPREADS = {
    "one": ([24], [24]),
    "all alike": ([12] * 30, [24] * 30),
    "counts": ([12] * 9 + [24] * 12 + [6] * 5 + [48, 3], [24]),
    "decades": (list(10 ** RANDOM.uniform(-2, 5, 40)), list(RANDOM.uniform(1, 5, 40))),
    "with zero and less": ([0, 0, -3, 1, 1000], [1]),
    "all zero": ([0, 0], [0]),
    "below zero": ([-5, -1], [-2]),
    "enormous": ([1e-200, 1e200], [1]),
}


@pytest.mark.parametrize(("guesses", "measured"), SPREADS.values(), ids=SPREADS)
def test_the_bars_hold_every_guess_once_and_none_overlaps_another(guesses, measured):
    one = figure(list(guesses), list(measured))
    bars = sorted(one.bars)
    assert sum(count for _, count, _, _ in bars) == len(guesses)
    for left, count, low, high in bars:
        assert count == sum(low <= guess <= high for guess in guesses)
        assert MARGIN - BAR <= left <= MARGIN + WIDTH
    edges = [left for left, *_ in bars]
    assert all(b - a >= BAR - 1e-6 for a, b in zip(edges, edges[1:], strict=False))
    assert [low for _, _, low, _ in bars] == sorted(low for _, _, low, _ in bars)


@pytest.mark.parametrize(("guesses", "measured"), SPREADS.values(), ids=SPREADS)
def test_a_bar_is_as_high_as_its_guesses_are_many(guesses, measured):
    one = figure(list(guesses), list(measured))
    heights = [one.height(count) for _, count, _, _ in one.bars]
    assert max(heights) == HIGH
    assert heights == [HIGH * count / one.most for _, count, _, _ in one.bars]


@pytest.mark.parametrize(("guesses", "measured"), SPREADS.values(), ids=SPREADS)
def test_the_measured_value_lies_where_a_guess_of_it_would(guesses, measured):
    guesses = [*guesses, median(measured)]
    one = figure(guesses, list(measured))
    least, middle, largest = one.measured
    assert MARGIN <= least <= middle <= largest <= MARGIN + WIDTH + 1e-6
    own = [left for left, _, low, high in one.bars if low <= median(measured) <= high]
    assert own == [pytest.approx(middle - BAR / 2)]


@pytest.mark.parametrize(("guesses", "measured"), SPREADS.values(), ids=SPREADS)
def test_ticks_are_few_in_order_and_apart(guesses, measured):
    places = [x for x, _ in figure(list(guesses), list(measured)).ticks]
    assert 2 <= len(places) <= 13 and places == sorted(places)
    assert all(b - a > 25 for a, b in zip(places, places[1:], strict=False))
    assert MARGIN <= places[0] and places[-1] <= MARGIN + WIDTH + 1e-6


def test_ticks_say_where_they_lie():
    ticks = dict((label, x) for x, label in figure([1, 1000], [10]).ticks)
    assert ticks["10"] - ticks["1"] == pytest.approx(ticks["100"] - ticks["10"])  # logarithmic
    ticks = dict((label, x) for x, label in figure([0, 10], [5]).ticks)
    assert ticks["10"] - ticks["5"] == pytest.approx(ticks["5"] - ticks["0"])


# -- the page --------------------------------------------------------------------------------------
def make_class(folder: Path, students: int = 30) -> None:
    """Reports of students who guess as students do: by a misconception, or somewhere near."""
    draw = np.random.default_rng(7)
    answers = {RING: (24, "messages"), SHARE: (3.0, "%"), "my own question": (5, "<i>u</i>")}
    for lab in ("02", "ring_all_reduce", "ddp", "parameter_server", "one_f_one_b"):
        for question in by_lab()[lab]:
            answers[question.asks] = (float(draw.choice([4, 27, 144])), "")
    wrong = {RING: [12] * 5 + [6, 6, 48], SHARE: [75, 50, 90, 25, 0.05, 10]}
    for number in range(students):
        for question, (answer, unit) in answers.items():
            near = round(float(answer * 10 ** draw.normal(0, 0.4)), 1)
            choice = wrong.get(question, [near]) + [answer, near]
            asked = predict(question, float(draw.choice(choice)), unit)
            asked.compare(answer if question != SHARE else float(draw.uniform(1.5, 6)))
        hand_in.record_check("every rank ends with the sum", float(draw.choice([0, 1.5, 3, 3])), 3)
        made = report(f"Student {number:02}")
        sub = folder / "handed-in" / f"s{number}"
        sub.mkdir(parents=True)
        (folder / made.file).rename(sub / made.file)
        start_over()


class Tags(HTMLParser):
    """That a page is well formed, and what it says."""

    VOID = {"meta", "rect", "line"}

    def __init__(self, page: str):
        super().__init__()
        self.open, self.tags, self.said = [], [], ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open += [] if tag in self.VOID else [tag]

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.said += data


def test_a_class_becomes_one_page(folder):
    make_class(folder)
    one, two = (folder / "handed-in" / f"s{i}" for i in (0, 1))
    newer = json.loads(next(one.glob("*.json")).read_text())
    later = datetime.fromisoformat(newer["written"]) + timedelta(hours=1)
    newer |= {"name": "student  00", "written": later.isoformat(), "predictions": []}
    (two / "again.json").write_text(json.dumps(newer))
    page = class_report(str(folder / "handed-in"))
    read = Tags(page)
    assert "30 students handed in" in read.said
    ring = read.said[read.said.index(RING) : read.said.index(SHARE)]
    assert "29 guesses; measured 24 messages" in ring  # the newer file of student 00 holds none
    counted = re.findall(r"(\d+) × (12 counts the reduce-scatter alone)", ring)
    files = [json.loads(f.read_text()) for f in (folder / "handed-in").rglob("dlviz-*.json")]
    guesses = [p["predicted"] for f in files[:] for p in f["predictions"] if p["question"] == RING]
    first = json.loads(next(one.glob("dlviz-*.json")).read_text())["predictions"]
    guesses.remove(next(p["predicted"] for p in first if p["question"] == RING))
    assert counted and int(counted[0][0]) == sum(abs(guess - 12) <= 0.12 for guess in guesses)
    assert f"{sum(24 / 1.04 <= guess <= 24 * 1.04 for guess in guesses)} right" in ring
    order = [read.said.index(title) for title in TITLES]
    assert order == sorted(order) and read.said.index("Other questions") > order[-1]
    assert "every rank ends with the sum" in read.said and "of 30" in read.said
    assert read.said.count("Student 07") == 1  # in the list of who handed in
    bars = [a for tag, a in read.tags if tag == "rect" and a["class"] == "bar"]
    assert len(bars) > 20 and len(page) < 300_000


def test_the_page_needs_no_network_and_takes_names_as_text(folder):
    predict("<img src=x onerror=alert(1)>", 2, '"><script>').compare(3)
    hand_in.record_check("<script>alert(2)</script>", 1, 1)
    report("Robert<script>alert(3)</script>")
    page = class_report(str(folder))
    tags = Tags(page).tags
    assert [tag for tag, _ in tags].count("script") == 1 and not re.search(r"<img", page)
    assert not re.search(r"https?://|//[a-z]|url\(|@import", page)
    policy = next(a["content"] for tag, a in tags if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert "Robert<script>alert(3)</script>" in Tags(page).said


FOREIGN = {
    "broken.json": ("{", "it is not JSON"),
    "binary.json": (b"\xff\x00", "it is not JSON"),
    "predictions.json": (
        json.dumps({"format": prediction_file.FORMAT, "predictions": {}}),
        "it is not a report",
    ),
    "list.json": ("[1]", "it is not a report"),
    "deep.json": ("[" * 100_000, "it is not JSON"),
    "nameless.json": (json.dumps({"format": hand_in.FORMAT}), "a report that was edited ('name')"),
    "huge.json": (" " * 2_000_001, "it has over 2,000,000 bytes"),
}
CHANGED = [
    {"predicted": "12"}, {"predicted": True}, {"made": "noon"}, {"measured": 1e999},
    {"question": None}, {"unit": 3}, {"opened": None},
]  # fmt: skip


def test_broken_and_foreign_files_are_named_and_skipped(folder):
    predict(RING, 12, "messages").compare(24)
    good = report("Ada").document()
    for name, (content, _) in FOREIGN.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(data)
    for number, change in enumerate(CHANGED):
        record = {**good["predictions"][0], **change}
        changed = json.dumps({**good, "name": "Eve", "predictions": [record]})
        (folder / f"changed-{number}.json").write_text(changed)
    (folder / "blank.json").write_text(json.dumps({**good, "name": " "}))
    students, skipped = hand_ins(folder)
    assert [student.name for student in students] == ["Ada"]
    said = dict(skipped)
    assert len(said) == len(FOREIGN) + len(CHANGED) + 1
    assert all(why in said[name] for name, (_, why) in FOREIGN.items()), said
    assert said["blank.json"] == "it has no name"
    read = Tags(class_report(str(folder)))
    assert "15 files skipped" in read.said and "huge.json: it has over" in read.said


def test_what_was_not_predicted_in_time_is_counted_apart(folder):
    predict(RING, ..., "messages").compare(24).open()
    report("Ada")
    start_over()
    predict(RING, ..., "messages").compare(24).open()
    predict(RING, 24, "messages")
    report("Bob")
    page = class_report(str(folder))
    assert "Not counted: 2 without a guess before the result." in page and "<svg" not in page
    assert "1 second attempt, 1 right." in page


@pytest.mark.parametrize("question", [RING, "ring: two racks over switch, 100 KB"])
def test_a_question_knows_its_lab(question):
    assert question in [each.asks for each in by_lab()[lab_of(question)]]


# -- the command -----------------------------------------------------------------------------------
def test_the_command_writes_the_page(folder, capsys):
    predict(RING, 12, "messages").compare(24)
    report("Ada")
    assert cli.main(["report", str(folder)]) == 0
    assert "class.html" in capsys.readouterr().out
    assert (folder / "class.html").read_text() == class_report(str(folder))
    assert cli.main(["report", str(folder), "--out", str(folder / "other.html")]) == 0
    assert (folder / "other.html").exists()


def test_the_command_says_in_a_sentence_what_it_cannot_use(folder, capsys):
    (folder / "predictions.json").write_text("{}")
    for arguments, said in [
        (["gone"], "gone is not a folder"),
        (["."], "holds no student's report (predictions.json: it is not a report"),
        ([".", "--out", "page.txt"], "has the wrong ending"),
    ]:
        assert cli.main(["report", *arguments]) == 2
        message_text = capsys.readouterr().err
        assert said in message_text and len(message_text.splitlines()) == 1


def test_the_page_in_a_browser(folder, browser):
    make_class(folder, 12)
    (folder / "class.html").write_text(class_report(str(folder)))
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    page.goto((folder / "class.html").as_uri())
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    page.click("#theme")
    assert page.evaluate(paper) == "rgb(21, 25, 30)"
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    boxes = page.evaluate(
        "[...document.querySelectorAll('svg')].map(svg => [svg.getBoundingClientRect(),"
        " ...[...svg.querySelectorAll('text, rect')].map(e => e.getBoundingClientRect())]"
        ".map(b => [b.left, b.top, b.right, b.bottom]))"
    )
    for (left, top, right, bottom), *inside in boxes:
        for box in inside:
            assert left - 1 <= box[0] and box[2] <= right + 1, box
            assert top - 1 <= box[1] and box[3] <= bottom + 1, box
    assert boxes and not errors
    page.close()

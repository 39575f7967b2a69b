"""A class's reports as one page: guesses beside the measured value, question by question.

    class_report("handed-in/")      the page, as self-contained HTML

Names appear only in the list of those who handed in, so the figures can be shown to the class.
Of several files with one name the newest counts. A file that is not a report is listed and
skipped.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path
from statistics import mean, median
from typing import Any

from dlviz.grading.assignments import titles
from dlviz.grading.predictions.hand_in import FORMAT
from dlviz.grading.predictions.predict import Prediction, factor, restored, shown
from dlviz.grading.questions import RIGHT, by_lab, lab_of
from dlviz.viz.palette import BLUE, FONT, SKY, THEMES, VERMILION

WIDTH, HIGH, BAR, MARGIN = 640, 96, 12, 36  # pixels: axis, highest bar, width of a bar, margins
LOG = 20  # ratio of largest to smallest number above which the axis is logarithmic
ASSIGNMENTS = titles()
LIMIT = 2_000_000  # most bytes of a report


@dataclass(frozen=True)
class HandedIn:
    """A student's file."""

    name: str
    written: datetime
    predictions: list[Prediction]
    checks: list[tuple[str, float, float]]  # what, points, most


@dataclass(frozen=True)
class BarChart:
    """The positions of a question's bars, in pixels; y counts upward from the axis."""

    bars: list[
        tuple[float, int, float, float]
    ]  # left edge, number of guesses, least and largest guess
    ticks: list[tuple[float, str]]
    measured: tuple[float, float, float]  # x of the least, the median and the largest
    most: int

    def height(self, guesses: int) -> float:
        return HIGH * guesses / self.most


def class_report(folder: str | Path) -> str:
    """The page on all reports in `folder` and its subfolders. Raises ValueError if there are
    none."""
    students, skipped = hand_ins(Path(folder))
    if not students:
        why = f" ({'; '.join(f'{name}: {fault}' for name, fault in skipped)})" if skipped else ""
        raise ValueError(f"{folder} holds no student's report{why}.")
    return page(students, skipped)


def hand_ins(folder: Path) -> tuple[list[HandedIn], list[tuple[str, str]]]:
    """The newest report of each student, by name, and the other files with the reason."""
    newest: dict[str, HandedIn] = {}
    skipped = []
    for file in sorted(folder.rglob("*.json")):
        try:
            student = _student(file)
        except (OSError, ValueError, RecursionError) as error:
            broken = isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError)
            skipped.append(
                (str(file.relative_to(folder)), "it is not JSON" if broken else f"{error}")
            )
            continue
        key = " ".join(student.name.casefold().split())
        if key not in newest or newest[key].written <= student.written:
            newest[key] = student
    return sorted(newest.values(), key=lambda each: each.name.casefold()), skipped


def _student(file: Path) -> HandedIn:
    if file.stat().st_size > LIMIT:
        raise ValueError(f"it has over {LIMIT:,} bytes")
    document = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError("it is not a report: report(...) writes one")
    try:
        if not _text(document["name"]).strip():
            raise ValueError("it has no name")
        return HandedIn(
            _text(document["name"]),
            _time(document["written"]),
            [_prediction(each) for each in document["predictions"]],
            [
                (_text(each["what"]), _number(each["points"]), _number(each["most"]))
                for each in document["checks"]
            ],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is a report that was edited ({error})") from error


def _prediction(record: dict[str, Any]) -> Prediction:
    stored = {**record, "value": record["predicted"], "unit": _text(record["unit"])}
    made = restored(_text(record["question"]), stored)
    if made is None:
        raise TypeError(f"{record['question']!r} has a number without a time")
    return made


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value[:500]


def _time(value: Any) -> datetime:
    return datetime.fromisoformat(_text(value)).astimezone()


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise TypeError(f"{value!r} is not a number")
    return value


# -- the figure of a question ----------------------------------------------------------------------
def figure(guesses: list[float], measured: list[float]) -> BarChart:
    """A histogram of the guesses, one bar centred on the class's median measurement. If numbers
    above 0 are far apart the axis is logarithmic, with the other guesses at its left end."""
    positive = [value for value in (*guesses, *measured) if value > 0]
    log = len(positive) > 1 and max(positive) > LOG * min(positive)
    shown_values = positive if log else [*guesses, *measured]
    low, high = min(shown_values), max(shown_values)
    room = (high - low or 2) / 10
    low, high = (low / 1.5, high * 1.5) if log else (low - room, high + room)

    def place(value: float) -> float:
        if log:
            above = math.log(value) - math.log(low) if value > 0 else 0.0
            share = above / (math.log(high) - math.log(low))
        else:
            share = (value - low) / (high - low)
        return MARGIN + share * WIDTH

    middle = place(median(measured))
    bins: dict[int, list[float]] = {}
    for guess in sorted(guesses):
        bins.setdefault(math.floor((place(guess) - middle) / BAR + 0.5), []).append(guess)
    return BarChart(
        [(middle + (n - 0.5) * BAR, len(own), own[0], own[-1]) for n, own in bins.items()],
        [(place(tick), shown(tick, "")) for tick in (_decades if log else _even)(low, high)],
        (place(min(measured)), middle, place(max(measured))),
        max(map(len, bins.values())),
    )


def _decades(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(powers) <= 4 else (1,)
    apart = 1 + len(powers) // 10
    ticks = [step * 10.0**power for power in powers[::apart] for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def _even(low: float, high: float) -> list[float]:
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step * power for step in (1, 2, 5, 10) if step * power >= rough)
    return [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def drawn(one: BarChart, unit: str, described: str) -> str:
    """The figure as SVG."""
    wide, axis = WIDTH + 2 * MARGIN, HIGH + 34
    least, middle, largest = one.measured
    parts = [
        f'<svg viewBox="0 0 {wide} {axis + 40}" role="img" aria-label="{escape(described)}">',
        f'<rect class="band" x="{least - 1:.1f}" y="20" width="{largest - least + 2:.1f}" '
        f'height="{axis - 20}"/>',
        f'<line class="measured" x1="{middle:.1f}" x2="{middle:.1f}" y1="6" y2="{axis}"/>',
    ]
    for left, count, low, high in one.bars:
        tall = one.height(count)
        range_ = shown(low, unit) if low == high else f"{shown(low, '')} to {shown(high, unit)}"
        parts.append(
            f'<g><title>{escape(range_)}: {count}</title><rect class="bar" x="{left + 1:.1f}" '
            f'y="{axis - tall:.1f}" width="{BAR - 2}" height="{tall:.1f}" rx="1"/>'
            f'<text x="{left + BAR / 2:.1f}" y="{axis - tall - 4:.1f}">{count}</text></g>'
        )
    parts.append(f'<line class="axis" x1="{MARGIN}" x2="{wide - MARGIN}" y1="{axis}" y2="{axis}"/>')
    for x, label in one.ticks:
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{axis}" y2="{axis + 4}"/>')
        parts.append(f'<text x="{x:.1f}" y="{axis + 18}">{escape(label)}</text>')
    parts.append(f'<text x="{wide / 2}" y="{axis + 36}">{escape(unit)}</text>')
    anchor = "start" if middle < wide / 2 else "end"
    parts.append(
        f'<text class="label" x="{middle + (6 if anchor == "start" else -6):.1f}" y="14" '
        f'style="text-anchor: {anchor}">measured</text></svg>'
    )
    return "\n".join(parts)


# -- the page --------------------------------------------------------------------------------------
def page(students: list[HandedIn], skipped: list[tuple[str, str]]) -> str:
    """The page on these students' reports."""
    answers: dict[str, list[Prediction]] = {}
    for student in students:
        for each in student.predictions:
            answers.setdefault(each.question, []).append(each)
    parts = [f"<p>{_several(len(students), 'student')} handed in.</p>"]
    for lab, asked in [*in_course_order().items(), ("", answers)]:
        here = [q for q in asked if q in answers and lab_of(q) == lab]
        if here:
            parts.append(f"<h2>{escape(title(lab))}</h2>")
            parts += [_question(question, answers[question]) for question in here]
    parts.append(_checks(students))
    parts.append(_list("Who handed in", (_who(each) for each in students)))
    if skipped:
        summary = (f"<b>{escape(file)}</b>: {escape(why)}" for file, why in skipped)
        parts.append(_list(f"{_several(len(skipped), 'file')} skipped", summary, opened=True))
    return PAGE.format(style=_style(), font=FONT, body="\n".join(parts))


def _question(question: str, answers: list[Prediction]) -> str:
    """One question: its figure, how many were right, and the misconceptions of the others."""
    counted = [each for each in answers if each.counts]
    measured = [each.measured for each in answers if each.measured is not None]
    again = [factor(each.second, each.measured) for each in answers if each.second is not None]
    none = sum(each.value is None and each.measured is not None for each in answers)
    parts = [f"<section><h3>{escape(question)}</h3>"]
    if counted:
        guesses = [each.value for each in counted if each.value is not None]
        unit = counted[0].unit
        right = sum(each.factor <= RIGHT for each in counted)
        factors = [each.factor for each in counted if math.isfinite(each.factor)]
        summary = (
            f"{_several(len(counted), 'guess', 'es')}; {_measured(measured, unit)}; {right} right"
        )
        if factors:
            summary += f"; typically off by a factor of {median(factors):.2f} (the median)"
        parts.append(f"<p>{escape(summary)}.</p>{drawn(figure(guesses, measured), unit, summary)}")
        why = Counter(each.misconception for each in counted if each.misconception)
        lines = (f"<b>{n} ×</b> {escape(sentence)}" for sentence, n in why.most_common())
        parts.append(f"<ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>" if why else "")
        table = sorted(Counter(guesses).items())
        rows = (f"{escape(shown(guess, unit))}: {n}" for guess, n in table)
        parts.append(_list("the guesses as a table", rows))
    if none:
        parts.append(f"<p>Not counted: {none} without a guess before the result.</p>")
    if again:
        right = sum(each <= RIGHT for each in again)
        parts.append(f"<p>{_several(len(again), 'second attempt')}, {right} right.</p>")
    return "\n".join([*parts, "</section>"])


def _measured(measured: list[float], unit: str) -> str:
    if min(measured) == max(measured):
        return f"measured {shown(measured[0], unit)}"
    least, largest = shown(min(measured), ""), shown(max(measured), unit)
    return f"measured {least} to {largest}, {shown(median(measured), unit)} in the median"


def _checks(students: list[HandedIn]) -> str:
    results: dict[str, list[tuple[float, float]]] = {}
    for student in students:
        for what, points, most in student.checks:
            results.setdefault(what, []).append((points, most))
    if not results:
        return ""
    rows = "".join(
        f"<tr><td>{escape(what)}</td><td>{sum(p >= most for p, most in own)} of {len(own)}</td>"
        f"<td>{mean(p for p, _ in own):.3g} of {own[0][1]:g}</td></tr>"
        for what, own in results.items()
    )
    head = "<tr><th>check</th><th>passed</th><th>points, on average</th></tr>"
    return f"<h2>Checks of the assignments</h2><table>{head}{rows}</table>"


def _who(student: HandedIn) -> str:
    counted = sum(each.counts for each in student.predictions)
    points = sum(points for _, points, _ in student.checks)
    summary = f"{_several(counted, 'prediction')}, {student.written:%d %B %Y, %H:%M}"
    graded = f", checks: {points:g}" if student.checks else ""
    return f"{escape(student.name)}: {summary}{graded}"


def _list(summary: str, lines: Iterable[str], opened: bool = False) -> str:
    items = "".join(f"<li>{line}</li>" for line in lines)
    shown_ = " open" if opened else ""
    return f"<details{shown_}><summary>{escape(summary)}</summary><ul>{items}</ul></details>"


def in_course_order() -> dict[str, list[str]]:
    """The questions of each lab, and then of each assignment."""
    known = by_lab()
    labs = [lab for lab in known if lab not in ASSIGNMENTS]
    return {lab: [each.asks for each in known[lab]] for lab in [*labs, *ASSIGNMENTS]}


def title(lab: str) -> str:
    """The title of a lab or an assignment, by its name in questions/."""
    if not lab:
        return "Other questions"
    return f"Assignment: {ASSIGNMENTS[lab]}" if lab in ASSIGNMENTS else f"Lab {lab}"


def _several(number: int, noun: str, ending: str = "s") -> str:
    return f"{number} {noun}{ending if number != 1 else ''}"


def _style() -> str:
    both = zip(THEMES["light"].items(), THEMES["dark"].values(), strict=True)
    names = [f"--{name}: light-dark({light}, {dark});" for (name, light), dark in both]
    names += [f"--bar: light-dark({BLUE}, {SKY});", f"--measured: {VERMILION};"]
    return ":root { color-scheme: light dark; " + " ".join(names) + " }"


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<title>What the class predicted - dlviz</title>
<style>
{style}
body {{ margin: 2rem auto; max-width: 780px; padding: 0 1rem; font: 16px/1.5 {font};
 background: var(--paper); color: var(--ink); }}
section {{ border-top: 1px solid var(--grid); padding: .5rem 0 1rem; break-inside: avoid; }}
h2 {{ margin-top: 2.5rem; }} h3 {{ margin: .5rem 0 0; }}
p {{ margin: .25rem 0; }} ul {{ margin: .25rem 0; }} summary {{ color: var(--faint); }}
svg {{ width: 100%; font-size: 12px; }}
svg text {{ fill: var(--ink); text-anchor: middle; stroke: var(--paper); stroke-width: 3px;
 paint-order: stroke; }}
svg text.label {{ font-weight: 600; }}
.bar {{ fill: var(--bar); }} .axis {{ stroke: var(--faint); }}
.measured {{ stroke: var(--measured); stroke-width: 2; }}
.band {{ fill: var(--measured); opacity: .15; }}
table {{ border-collapse: collapse; }}
td, th {{ border: 1px solid var(--grid); padding: .2rem .6rem; text-align: left; }}
button {{ float: right; font: inherit; }}
@media print {{ button {{ display: none; }} }}
</style>
</head>
<body>
<button type="button" id="theme">dark or light</button>
<h1>What the class predicted</h1>
{body}
<script>
document.getElementById("theme").onclick = () => {{
  const root = document.documentElement.style;
  const dark = getComputedStyle(document.body).backgroundColor === "rgb(255, 255, 255)";
  root.colorScheme = dark ? "dark" : "light";
}};
</script>
</body>
</html>
"""

"""Why a prediction was far off: every question has its misconceptions, none is named wrongly."""

from __future__ import annotations

import json
import math
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dlviz
from dlviz.grading import predict, questions
from dlviz.grading.predictions import prediction_file
from dlviz.grading.predictions.class_page import in_course_order, title
from dlviz.grading.predictions.predict import _made
from dlviz.grading.questions import Question, behind, by_lab, lab_of
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.metrics import bubble_ratio, makespan, peak_in_flight
from dlviz.models import MLP
from dlviz.parallel.data.buckets import fill_buckets
from dlviz.parallel.update_rules import make as make_rule
from dlviz.schedules import make

LABS = Path(__file__).parents[2] / "labs"
NOTEBOOKS = sorted([*LABS.glob("*.ipynb"), *LABS.parent.glob("assignments/source/*/*.ipynb")])
QUESTIONS = [question for asked in by_lab().values() for question in asked]
WEIGHTS = 64 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10  # of the MLP of labs 00 and 01
SLOW = 2e-3, 1e-7  # alpha and beta of lab 02's slow network
LAST = 16 * 2 * 64 * 128 / 23.443e6  # s, the backward of lab 03's first layer on a rank of four
COUNTED = {  # exact, and counted in runs alone
    "weights-that-differ", "dropped-digits", "column-row-all-reduces", "sequence-parallel-bytes",
    "best-scaled-batch", "deadline-digits-read", "digits-read-federated", "digits-read-clipped",
    "steps-of-large-batch", "rules-that-read", "mlp-all-reduces",
}  # fmt: skip


def asked(notebook: Path) -> list[tuple[str, str]]:
    """Text and unit of each question of a notebook."""
    code = [c["source"] for c in json.loads(notebook.read_text())["cells"] if "outputs" in c]
    call = r'predict\(\s*"([^"]+)",\s*[^,)]+(?:,\s*"([^"]*)")?'
    return re.findall(call, "\n".join("".join(lines) for lines in code))


def messages(algorithm: str, ranks: int) -> int:
    return len(getattr(dlviz.patterns, algorithm).all_reduce(ranks, 8 * ranks))


def ring_bytes(ranks: int, nbytes: int) -> int:
    sent = [m.count for m in dlviz.patterns.ring.all_reduce(ranks, nbytes) if m.src == 0]
    return sum(sent)


def simulated(name: str, ranks: int, microbatches: int, **options: int) -> dlviz.Trace:
    return dlviz.simulate(make(name, ranks, microbatches, **options))


def speed_up(name: str) -> float:
    return 8 / (1 + bubble_ratio(simulated(name, 8, 8)))


def enough() -> int:
    """The fewest microbatches for a bubble ratio of 0.1 on eight devices."""
    good = (m for m in range(60, 90) if bubble_ratio(simulated("gpipe", 8, m)) <= 0.1 + 1e-9)
    return next(good)


def crossing() -> float:
    sizes = np.geomspace(1e5, 3e5, 201)
    curves = {
        name: [dlviz.sim.collective_seconds(name, 8, size, *SLOW) for size in sizes]
        for name in ("ring", "butterfly")
    }
    return dlviz.viz.crossovers(sizes, curves)[0][0] / 1e3


def over_a_switch(algorithm: str, nbytes: int, topology: Topology) -> float:
    machine = Machine(classroom(8).device, topology)
    switch = dlviz.sim.collective_seconds(algorithm, 8, nbytes, *SLOW)
    return makespan(dlviz.sim.collective(algorithm, 8, nbytes, machine)) / switch


def two_hosts(nbytes: float) -> float:
    """The ring over the hierarchical all-reduce on two hosts of two ranks, by bytes alone."""
    cable, inside = Link(0, 12.5e6), Link(0, math.inf)
    ring = dlviz.sim.collective_seconds("ring", 4, nbytes, 0, 1 / cable.bandwidth)
    racks = Topology.racks(2, 2, inside, cable)
    return ring / dlviz.sim.collective_seconds("hierarchical", 4, nbytes, racks)


def scaled(ranks: int, **options: Any) -> float:
    """Milliseconds of a step of lab 03, whose network has 8.9 MFLOP a batch."""
    flops = 64 * (6 * (64 * 128 + 128 * 128 + 1280) - 2 * 64 * 128)
    compute, nbytes = flops / 23.443e6, 4 * WEIGHTS
    return 1e3 * dlviz.sim.data_parallel_seconds(ranks, compute, nbytes, 1e-4, 2e-7, **options)


def overlapped() -> float:
    """The step of four ranks with three buckets, the first two of which hide behind LAST."""
    first, second, third = (
        1e3 * dlviz.sim.collective_seconds("ring", 4, nbytes, 1e-4, 2e-7)
        for nbytes in (4 * (10 + 1280 + 128), 4 * 128 * 128, 4 * (128 + 64 * 128))
    )
    return scaled(1) / 4 + first + second - 1e3 * LAST + third


def walked(name: str, curvatures: list[float], **options: float) -> int:
    """Steps of an update rule from (1, 1) to a millionth of that distance."""
    rule, w = make_rule(name, **options), torch.ones(2, dtype=torch.float64)
    bends, steps = torch.tensor(curvatures), 0
    while w.norm() > 1e-6 * 2**0.5:
        rule.step([w], [bends * w])
        steps += 1
    return steps


def gradients_of(*nbytes: int) -> torch.nn.Module:
    parameters = (torch.nn.Parameter(torch.zeros(n // 8, dtype=torch.float64)) for n in nbytes)
    model = torch.nn.Module()
    model.all = torch.nn.ParameterList(parameters)
    return model


def formulas() -> dict[str, float]:
    """What is measured, computed here apart from the labs, by the question's id."""
    slow = Link(SLOW[0], 1 / SLOW[1])
    racks = Topology.racks(2, 4, slow, Link(SLOW[0], 0.1 / SLOW[1]))
    ring, tensor, n = messages("ring", 4), 96, 4
    pipedream = [str(action) for action in make("pipedream", 4, 16).actions[0]]
    before_b8 = pipedream[: pipedream.index("0B8")]
    after_f8 = before_b8[before_b8.index("0F8") :]
    return {
        "ring-messages": ring,
        "naive-speed-up": 400 / (100 + 7 * 6 * 1 + 0.157),
        "ddp-step": 100 + 6 * 1 + 1.5 * 0.03328,
        "layer-storage": 2 * 4 * (WEIGHTS + 64 * (4 * 128 + 10)) / 1000,
        "autograd-storage": 4 * 64 * (64 + 128 + 128) / 1000,
        "momentum-speed-up": walked("sgd", [1, 100], lr=2 / 101)
        / walked("momentum", [1, 100], lr=4 / 121, momentum=(9 / 11) ** 2),
        "bytes-of-large-model": 10e9 * 4 * (2 + make_rule("adam", 0.1).state_tensors) / 1e9,
        "gradient-noise": (256 / 16) ** 0.5,
        "butterfly-messages": messages("butterfly", 4),
        "ring-time": 1e3 * dlviz.sim.collective_seconds("ring", 4, 100_000, *SLOW),
        "ring-overtakes-butterfly": crossing(),
        "halving-doubling-wired": over_a_switch(
            "halving_doubling", 1_000_000, Topology.ring(8, slow)
        ),
        "ring-on-racks": over_a_switch("ring", 100_000, racks),
        "ring-on-two-hosts": two_hosts(16e6),
        "noun-entropy": -sum(p * math.log(p) for p in (0.3, 0.2, 0.2, 0.2, 0.1)),
        "server-bytes": 4 - 1,
        "one-bucket-step": scaled(4),
        "three-buckets-step": overlapped(),
        "ring-16-speed-up": scaled(1) / scaled(16),
        "weak-scaling": 100 * scaled(1) / scaled(8, scaling="weak"),
        "naive-pipeline-speed-up": speed_up("naive"),
        "gpipe-speed-up": speed_up("gpipe"),
        "enough-microbatches": enough(),
        "1f1b-held": peak_in_flight(simulated("1f1b", 4, 16))[0],
        "interleaved-messages": len(simulated("interleaved", 4, 8, chunks=2).messages),
        "pipedream-updates": sum("B" in action for action in after_f8),
        "zb-h1-bubble": bubble_ratio(simulated("zb_h1", 4, 8)),
        "round-bytes": 2 * 4 * 4 * (64 * 32 + 32 + 32 * 10 + 10),
        "training-share": 100 * 180 / (4 * 10.016 + 19.64 + 180 + 4 * (19.64 + 10.04) + 5),
        "secure-sum-bytes": 100
        * (179 * 8 + 148 + len("shape (2410,), float32, threshold 5, clip 1.0, bits 32"))
        / 9640,
        "epsilon": dlviz.federated.epsilon(1, 0.1, 40, 1e-5),
        "sent-bytes": ring / n * (tensor / n),
        "whole-chunk": next(
            m.offset for m in dlviz.patterns.ring.all_reduce(4, 4) if m.src == 0 and m.step == 3
        ),
        "mean-gradient": np.average([2, 6], weights=[3, 1]),
        "number-of-buckets": len(fill_buckets(gradients_of(32, 56, 24, 48, 16), 72)),
        "ddp-assignment-step": 30
        + 60
        + 1e3 * dlviz.sim.collective_seconds("ring", 4, 9216, 3e-3, 0.0),
        "locked-weight": 10 - 1 - 2,
        "most-staleness": 4 - 1,
        "bounded-time": 6 * (45 + 1 + 2 + 1),
        "held-numbers": 16 * 32 // 4 * 2 + 32 // 4 + 16,
        "mlp-bytes": 2 * ring_bytes(4, 4 * 16 * 8),
        "mlp-step": 96 / 4 + 2e3 * dlviz.sim.collective_seconds("ring", 4, 512, 1e-3, 0.0),
        "mesh-partner": 5 - 2 * 2,
        "mesh-tp-bytes": 2 * ring_bytes(2, 8 * 8 * 16 * 8),
        "mesh-dp-bytes": ring_bytes(2, 48 * 16 * 8) + ring_bytes(2, 2 * 16 * 16 * 8),
        "weighted-average": 2 + (60 * (4 - 2) + 20 * (0 - 2)) / (60 + 20),
        "fedavg-bytes": 2 * 4 * 8 * sum(p.numel() for p in MLP((64, 32, 10)).parameters()),
        "deadline-time": 40 + 2 * (3 + 20 + 1) + 40 + 3 * 1,
        "rank-0-in-flight": peak_in_flight(simulated("1f1b", 4, 8))[0],
        "1f1b-bubble": bubble_ratio(simulated("1f1b", 4, 8)),
        "interleaved-in-flight": peak_in_flight(simulated("interleaved", 4, 8, chunks=2))[0],
    }


def values(question: Question) -> list[float]:
    """The answer, how far off a run of it may be, and what machines show."""
    off = question.within * question.answer
    shown = [*np.linspace(*question.range, 5)] if question.range else []
    return [question.answer, question.answer - off, question.answer + off, *shown]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_questions_of_a_notebook_are_those_of_its_file(notebook):
    number = notebook.stem.partition("_")[0]
    questions = by_lab()[number if number.isalnum() and number[0].isdigit() else notebook.stem]
    assert [(each.asks, each.unit) for each in questions] == asked(notebook)
    assert all(len(each.wrong) >= 3 for each in questions)


def test_every_question_is_asked_somewhere_and_has_a_name_of_its_own():
    texts = [text for notebook in NOTEBOOKS for text, _ in asked(notebook)]
    assert sorted(each.asks for each in QUESTIONS) == sorted(texts)
    names, several = {each.id for each in QUESTIONS}, {each.asks for each in QUESTIONS}
    assert len(names) == len(several) == len(QUESTIONS) > 80
    assert all(re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", each.id) for each in QUESTIONS)


def formulas_of_tests() -> dict[str, float]:
    """`FORMULAS` of the tests of single labs and assignments: a question's id -> its answer."""
    tests = Path(__file__).parents[1]
    found = {}
    for path in [*tests.glob("labs/test_lab_*.py"), *tests.glob("grading/assignments/*/test_*.py")]:
        if "\nFORMULAS = " in path.read_text():
            found |= runpy.run_path(str(path))["FORMULAS"]
    return found


def test_the_answers_are_what_the_formulas_say():
    known = {each.id: each for each in QUESTIONS}
    computed = formulas() | formulas_of_tests()
    assert {*computed} <= {*known}
    for id, value in computed.items():
        assert known[id].answer == pytest.approx(value, rel=3e-3), id
    exact = {each.id for each in QUESTIONS if not each.within and not each.range}
    assert exact - {*computed} == COUNTED


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.id)
def test_the_right_answer_is_never_explained_away(question):
    for value in values(question):
        for near in (value, 0.97 * value, 1.03 * value):
            assert behind(question.asks, near, value) == "", (near, value)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.id)
def test_each_sentence_is_reached_by_some_number(question):
    numbers = [*range(-1, 300), *np.geomspace(1e-3, 1e7, 4250), 0.1875, 570, 576, 600, 640]
    numbers.append(16_777_216)
    for value in values(question):
        reached = {behind(question.asks, number, value) for number in numbers}
        assert {sentence for _, sentence in question.wrong} <= reached, value
        assert "" in reached


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.id)
def test_the_example_of_a_stored_lab_is_what_the_first_sentence_is_about(question):
    assert behind(question.asks, question.example, question.answer) == question.wrong[0][1]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.id)
def test_a_sentence_is_one_that_a_reader_can_use(question):
    message_text = [sentence for _, sentence in question.wrong]
    assert len(set(message_text)) == len(message_text)
    for sentence in message_text:
        assert 20 < len(sentence) < 220 and sentence[0].isupper() | sentence[0].isdigit()
        assert sentence.endswith(".") and "  " not in sentence


def test_a_time_that_came_out_near_the_prediction_makes_it_right():
    question = "ring all-reduce of 100 KB, 4 ranks, slow network"
    assert behind(question, 13.5, 27) and not behind(question, 13.5, 13.2)


def test_ranks_that_wait_for_most_of_the_time_are_told_of_only_where_they_do():
    question = "share of the time in which a rank computes"
    assert "ranks mostly wait" in behind(question, 75, 5)
    assert behind(question, 60, 43) == "" and "ranks mostly wait" in behind(question, 90, 43)


def test_a_number_that_no_misconception_leads_to_is_left_alone():
    assert behind("messages of a ring all-reduce, 4 ranks", 21, 24) == ""
    assert behind("a question of the reader's own", 1, 2) == ""
    assert lab_of("a question of the reader's own") == ""


# -- files -----------------------------------------------------------------------------------------
ENTRY = """
[[question]]
id = "time"
asks = "how long?"
answer = 10
within = 0.1
wrong = [[5, "5 is one half of it."], [[["2x", 12], inf], "That is too long."]]
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder of a lecturer's own questions, beside the notebook."""
    monkeypatch.setattr(questions, "own", tmp_path)
    return tmp_path


def test_a_lecturers_own_file_beside_the_notebook_wins(own):
    asks, mine = "messages of a ring all-reduce, 4 ranks", "Count the chunks that you drew."
    text = (questions.PACKAGE / "00.toml").read_text(encoding="utf-8")
    theirs = "12 counts the reduce-scatter alone: the all-gather sends as many messages again."
    assert text.count(theirs) == 1
    (own / "00.toml").write_text(text.replace(theirs, mine), encoding="utf-8")
    (own / "13.toml").write_text(ENTRY)
    assert behind(asks, 12, 24) == mine
    assert lab_of("how long?") == "13" and behind("how long?", 5, 10) == "5 is one half of it."
    order = list(in_course_order())
    assert title("13") == "Lab 13" and order[order.index("13") + 1] == "ring_all_reduce"
    assert lab_of("a DDP step with three buckets, 4 ranks") == "ddp"


def test_a_notebook_finds_the_folder_of_questions_beside_it(tmp_path):
    (tmp_path / "questions").mkdir()
    (tmp_path / "questions" / "13.toml").write_text(ENTRY)
    code = "from dlviz.grading import predict; print(predict('how long?', 5).compare(10))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert "5 is one half of it." in done.stdout, done.stderr


@pytest.mark.parametrize("text", [b"[[question]", b"\xff", b"", b"a = " + b"[" * 5000])
def test_a_broken_file_of_a_lecturers_costs_no_prediction_and_no_result(own, monkeypatch, text):
    (own / "00.toml").write_bytes(text)
    monkeypatch.setattr(prediction_file, "file", own / "predictions.json")
    asked = predict("messages of a ring all-reduce, 4 ranks", 12, "messages").compare(24)
    try:
        with pytest.warns(RuntimeWarning, match=r"00\.toml is not used: 00\.toml"):
            assert "12 counts the reduce-scatter alone" in " ".join(repr(asked).split())
        assert repr(asked), "a second look warns no more"
    finally:
        _made.clear()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id = "time"', "", "number 1: it has no `id`: add it"),
        ('asks = "how long?"', "asks = 3", "time: `asks` is not text: put it in quotes"),
        ("within = 0.1", "witin = 0.1", "time: `witin` is not known: use id, asks"),
        ("within = 0.1", "within = 2", "`within` is 2: write 0.02 for 2 %"),
        ("answer = 10", "answer = nan", "the answer nan is not a number"),
        ("answer = 10", "answer = true", "the answer True is not a number"),
        ("answer = 10", f"answer = 1{'0' * 400}", "is not a number: write what is measured"),
        ("within = 0.1", "range = [12, 9]", r"\[12, 9\] is not a range: write \[smallest"),
        ("[5,", "[[6, 4],", r"the guess \[6, 4\] is neither a number nor \[smaller, larger\]"),
        ("[5,", '[["x", 4],', "is neither a number nor"),
        ("[5,", '[[1, ["x"]],', "is neither a number nor"),
        ("[5,", "[[[], 4],", "is neither a number nor"),
        ("[5,", '["4x",', "the guess '4x' is neither a number nor"),
        ("[5,", '[["0.5x", 3],', r"the guess \['0.5x', 3\] is neither a number nor"),
        ("[5,", "[10,", "the guess 10 includes the measured value, 9 to 11: write a narrower one"),
        ("[5,", "[9.05,", "the guess 9.05 includes the measured value"),
        ("[5,", "[[1, 9.5],", r"the guess \[1, 9.5\] includes the measured value"),
        ("within = 0.1", "range = [5, 12]", "the guess 5 includes the measured value, 5 to 5"),
        ('"5 is one half of it."', "5", "is not a wrong guess: write"),
        ("[[5,", "[5, [5,", "5 is not a wrong guess: write"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_what_to_change(tmp_path, old, new, message):
    assert ENTRY.count(old) == 1
    (tmp_path / "13.toml").write_text(ENTRY.replace(old, new))
    with pytest.raises(ValueError, match=rf"^13\.toml, question .*{message}"):
        questions.load(tmp_path / "13.toml")


@pytest.mark.parametrize("name", ["id", "asks"])
def test_two_questions_of_one_name_or_text_are_refused(tmp_path, name):
    other = {"id": ENTRY.replace("how long", "which"), "asks": ENTRY.replace('"time"', '"other"')}
    (tmp_path / "13.toml").write_text(ENTRY + other[name])
    with pytest.raises(ValueError, match=f"its `{name}` is another question's too: change one"):
        questions.load(tmp_path / "13.toml")

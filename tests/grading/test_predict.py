"""Predictions: frozen once opened, stored beside the notebook, and how far off they were."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from dlviz.grading import calibration, predict
from dlviz.grading.predictions import prediction_file
from dlviz.grading.predictions.predict import _made, everything

RING = "messages of a ring all-reduce, 4 ranks"


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch) -> Path:
    """Beside a notebook that nobody has answered yet."""
    file = tmp_path / "predictions.json"
    monkeypatch.setattr(prediction_file, "file", file)
    restart()
    yield file
    restart()


def restart():
    """What a new kernel begins with."""
    _made.clear()
    prediction_file._said.clear()


def test_a_prediction_can_change_until_its_result_is_opened():
    assert predict("messages", 12).value == 12
    assert predict("messages", 20).value == 20
    predict("messages", 20).compare(24)
    assert predict("messages", 24).value == 20


def test_without_a_number_the_result_is_withheld_until_one_is_typed():
    asked = predict("messages", ..., "messages")
    assert repr(asked) == "messages: type your number in place of ... and run the cell again"
    waiting = repr(asked.compare(24))
    assert "the result waits for your number" in waiting and "24" not in waiting
    assert calibration() == "Results that wait for your number: 1."
    answered = " ".join(repr(predict("messages", 12, "messages")).split())
    assert "predicted 12 messages at" in answered and answered.endswith("off by a factor of 2.00")
    assert asked.counts and "wait for" not in calibration()


def test_a_result_opened_without_a_number_is_not_counted():
    asked = predict("messages", ..., "messages").compare(24)
    asked.open()
    assert repr(asked) == "messages: measured 24 messages; nothing was predicted"
    asked.compare(24, calculated=True)
    assert repr(asked) == "messages: calculated 24 messages; nothing was predicted"
    asked.compare(24)
    assert calibration() == "Not counted: 1 without a prediction before the result."
    asked.compare(25)  # run again: it stays open
    assert asked.measured == 25 and not asked.counts


def test_where_no_predictions_are_kept_no_result_is_withheld(monkeypatch):
    monkeypatch.setattr(prediction_file, "file", None)
    assert predict("messages", ..., "messages").compare(24).measured == 24


def test_a_number_typed_after_the_result_is_a_second_attempt_and_counted_as_one():
    predict("messages", ..., "messages").compare(24).open()
    late = predict("messages", 24, "messages")
    assert not late.counts and (late.value, late.second) == (None, 24)
    assert " ".join(repr(late).split()).endswith("second attempt: 24 messages, right")
    assert predict("messages", 12, "messages").second == 24  # the first number that was typed
    predict("other", 1).compare(2)
    assert predict("other", 1).second is None  # its cell was run again
    again = " ".join(repr(predict("other", 4)).split())
    assert again.endswith("off by a factor of 2.00; second attempt: 4, off by a factor of 2.00")
    assert predict("other", 4).factor == 2 and predict("other", 4).counts
    assert "messages" not in calibration().splitlines()[0]
    assert calibration().splitlines()[-2:] == [
        "Not counted: 1 without a prediction before the result.",
        "Second attempts: 2, of which 1 right.",
    ]


def test_a_notebook_shows_a_withheld_result_behind_a_button(monkeypatch):
    shown, updated = [], []

    class Handle:
        def update(self, content, raw):
            updated.append(content["text/plain"])

    def display(content, raw, display_id=False):
        shown.append(content)
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    buttons = []
    monkeypatch.setattr(
        "ipywidgets.Button.on_click", lambda button, pressed: buttons.append((button, pressed))
    )
    asked = predict("a < b", ..., "s").compare(3)
    asked._ipython_display_()
    sentence, widget = shown
    assert "waits" in sentence["text/plain"] and "a &lt; b" in sentence["text/html"]
    ((button, pressed),) = buttons
    assert widget["application/vnd.jupyter.widget-view+json"]["model_id"] == button.model_id
    pressed(button)
    assert updated == ["a < b: measured 3 s; nothing was predicted"]
    assert button.layout.display == "none"
    with pytest.raises(NotImplementedError):  # IPython then shows the repr
        asked._ipython_display_()
    predict("c", ...).compare(3)._ipython_display_()
    predict("c", 6)
    assert updated[-1].endswith("off by a factor of 2.00")


def test_a_file_of_before_second_attempts_is_read(file):
    file.write_text(
        json.dumps(
            {
                "format": prediction_file.FORMAT,
                "predictions": {
                    "q": {
                        "unit": "s",
                        **{"value": 4, "made": "2026-03-02T10:22:35+01:00"},
                        **{"measured": 3, "opened": "2026-03-02T10:22:30+01:00", "late": True},
                    }
                },
            }
        )
    )
    read = predict("q", ...)
    assert (read.value, read.measured, read.second) == (None, 3, 4)


def test_an_object_from_before_the_number_knows_it():
    before = predict("messages", ...)
    predict("messages", 12)
    assert before.compare(24).value == 12 and calibration().startswith("messages: predicted 12")


def test_a_number_that_is_run_again_keeps_its_time(file):
    predict("messages", 12)
    made = _made["messages"].made = _made["messages"].made.replace(year=2001)
    assert predict("messages", 12).made == made
    assert predict("messages", 13).made != made


@pytest.mark.parametrize(
    ("value", "measured", "factor"),
    [(24, 24, 1), (12, 24, 2), (48, 24, 2), (0, 3, math.inf), (-1, 1, math.inf), (0, 0, 1)],
)
def test_the_error_factor_is_the_same_both_ways(value, measured, factor):
    assert predict("q", value).compare(measured).factor == factor


def test_what_is_shown_states_both_numbers_and_the_gap():
    shown = repr(predict("length of a step", 50, "ms").compare(55.0))
    assert "predicted 50 ms at" in shown and "measured 55 ms" in shown
    assert shown.endswith("off by a factor of 1.10")
    assert repr(predict("zero", 0, "ms").compare(5)).endswith("off by 5 ms")
    assert repr(predict("bytes", 104_000).compare(104_488)).endswith(
        "predicted 104,000 at " + repr(_made["bytes"]).partition(" at ")[2]
    )
    assert repr(_made["bytes"]).endswith("measured 104,488; right within 1 %")
    assert repr(predict("exact", 7).compare(7)).endswith("; right")


def test_the_misconception_behind_a_far_off_number_is_named_once_the_result_is_open():
    assert "reduce-scatter" not in repr(predict(RING, 12, "messages"))
    message_text = repr(predict(RING, 12, "messages").compare(24)).splitlines()
    assert message_text[1].endswith("off by a factor of 2.00")
    assert message_text[2].startswith("12 counts the reduce-scatter alone")
    assert message_text == calibration().splitlines()[: len(message_text)]
    _made.clear()
    assert "12 counts" not in repr(predict(RING + " ", 12).compare(24))


def test_no_line_is_longer_than_a_notebook_shows():
    question = "microbatches for a bubble ratio of 0.1, 8 devices"
    predict(question, 63).compare(70)
    predict("a question of many words, " * 5, ...)
    for made in _made.values():
        assert max(map(len, repr(made).splitlines())) <= 88
    lines = calibration().splitlines()
    assert max(map(len, lines)) <= 88 and lines[1].startswith("  ") and "63 makes" in lines[2]


def test_calibration_is_the_median_which_a_wild_guess_does_not_move():
    assert calibration() == "no prediction was compared yet"
    for question, value, measured in (("a", 1, 2), ("b", 8, 2), ("c", 60, 0.34), ("d", 0, 1)):
        predict(question, value).compare(measured)
    predict("unopened", 7)
    text = calibration()
    assert "unopened" not in text and "Not counted" not in text
    assert "d: predicted 0" in text  # shown, though a factor says nothing
    assert "off by a factor of 4.00: the median of 3, so half" in text


@pytest.mark.parametrize("value", ["many", math.nan, math.inf, True, None, 10**400, 1j])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ValueError, match="is not a number"):
        predict("q", value)
    with pytest.raises(ValueError, match="is not a number"):
        predict("q", 1).compare(value)


# -- stored beside the notebook ----------------------------------------------------------------
def test_predictions_survive_a_restart_of_the_kernel(file):
    made = predict(RING, 12, "messages").made
    predict("opened", np.float64(2.5)).compare(np.int64(5))
    predict("spoilt", ...).compare(3).open()
    restart()
    assert predict(RING, ..., "messages").value == 12
    assert predict(RING, 12, "messages").made == made
    frozen = predict("opened", 9)
    assert (frozen.value, frozen.measured) == (2.5, 5)
    assert predict("spoilt", 3).second == 3
    restart()
    assert predict("spoilt", 4).second == 3 and predict("opened", ...).second == 9


def test_a_new_process_reads_what_another_one_kept(file):
    code = "from dlviz.grading import predict; print(predict('q', 3, 's'))"
    for said in ("q: predicted 3 s at", "q: predicted 5 s at"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=file.parent,
            env={name: v for name, v in os.environ.items() if name != "DLVIZ_PREDICTIONS"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith(said) and not done.stderr
        predict("q", 5, "s").compare(4)  # by this one in between
    assert sorted(os.listdir(file.parent)) == ["predictions.json"]


def test_the_file_is_for_people_too(file):
    predict("α of a message", 12, "µs").compare(24)
    text = file.read_text()
    assert '"α of a message"' in text and '"unit": "µs"' in text and len(text.splitlines()) > 5
    record = json.loads(text)["predictions"]["α of a message"]
    assert (record["value"], record["measured"], record["second"]) == (12, 24, None)
    assert record["made"][:2] == "20" and len(record["made"]) == len("2026-03-02T10:22:35+01:00")


def test_two_notebooks_of_a_folder_share_the_file(file):
    predict("of lab 00", 1)
    restart()
    predict("of lab 02", 2).compare(3)
    assert {each.question for each in everything()} == {"of lab 00", "of lab 02"}
    assert "lab 00" not in calibration()  # that of this notebook


def test_without_the_file_a_reader_starts_over(file):
    predict("q", 1).compare(2)
    file.unlink()
    restart()
    assert predict("q", 5).measured is None


BROKEN = {
    "no JSON": "{",
    "no text": b"\xff\xfe\x00",
    "deep": "[" * 100_000,
    "foreign": '{"cells": []}',
    "a list": "[]",
    "without predictions": json.dumps({"format": prediction_file.FORMAT}),
    "wrong records": json.dumps({"format": prediction_file.FORMAT, "predictions": {"q": 3}}),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_costs_one_sentence_and_is_left_as_it_is(file, content):
    data = content if isinstance(content, bytes) else content.encode()
    file.write_bytes(data)
    with pytest.warns(RuntimeWarning, match="until the kernel restarts") as message_text:
        predict("q", 12)
    assert (
        len(message_text) == 1
        and str(file) in str(message_text[0].message)
        and message_text[0].filename == __file__
    )
    assert "q: predicted 12" in repr(predict("q", 12).compare(24))  # and not a second time
    assert file.read_bytes() == data and os.listdir(file.parent) == [file.name]


EDITED = [
    {"value": "many"}, {"value": None}, {"made": "noon"}, {"made": None}, {"measured": 5},
    {"value": True}, {"unit": ...},
]  # fmt: skip


@pytest.mark.parametrize("edit", EDITED, ids=str)
def test_a_record_that_somebody_edited_is_asked_again(file, edit):
    predict("q", 12)
    predict("other", 1)
    document = json.loads(file.read_text())
    record = document["predictions"]["q"]
    for name, value in edit.items():
        record.pop(name) if value is ... else record.update({name: value})
    file.write_text(json.dumps(document))
    restart()
    assert predict("other", ...).value == 1
    assert predict("q", ...).value is None


def test_a_folder_that_cannot_be_written_costs_one_sentence(file, monkeypatch):
    monkeypatch.setattr(prediction_file, "file", file.parent / "gone" / "predictions.json")
    with pytest.warns(
        RuntimeWarning, match=r"gone.* cannot be written \(No such file"
    ) as message_text:
        assert predict("q", 12).compare(24).factor == 2
    assert len(message_text) == 1
    monkeypatch.setattr(prediction_file, "file", file.parent)  # a folder of that name
    with pytest.warns(RuntimeWarning, match="cannot be read"):
        assert predict("r", 12).value == 12
    assert "r: predicted 12" in repr(predict("r", 12))


def test_a_full_disk_leaves_the_file_whole(file, monkeypatch):
    predict("q", 1)
    before = file.read_bytes()
    real = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        real(path, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        predict("q", 2)
    assert file.read_bytes() == before and os.listdir(file.parent) == [file.name]


def test_no_file_is_kept_where_none_is_wanted(file, monkeypatch):
    monkeypatch.setattr(prediction_file, "file", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predict("q", 1).compare(2)
    assert not os.listdir(file.parent)

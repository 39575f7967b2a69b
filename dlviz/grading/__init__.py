"""What labs and assignments call: predictions that are frozen before the result is seen, and the
report to hand in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlviz.grading.handin import report, total
from dlviz.grading.predict import Prediction, calibration, predict

if TYPE_CHECKING:
    from dlviz.grading.progress_table import LabProgress

__all__ = ["Prediction", "calibration", "class_report", "predict", "progress", "report", "total"]


def class_report(folder: str) -> str:
    """A class's reports as one page (class_page.py), which loads what draws it."""
    from dlviz.grading.class_page import class_report

    return class_report(folder)


def progress(folder: str = ".") -> LabProgress:
    """How far somebody is in the labs and assignments of a folder (progress_table.py)."""
    from dlviz.grading.progress_table import progress

    return progress(folder)

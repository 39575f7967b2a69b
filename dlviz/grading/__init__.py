"""What labs and assignments call: predictions, frozen before the result is seen, and the report
to hand in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlviz.grading.predictions.hand_in import report, total
from dlviz.grading.predictions.predict import Prediction, calibration, predict

if TYPE_CHECKING:
    from dlviz.grading.predictions.progress import LabProgress

__all__ = ["Prediction", "calibration", "class_report", "predict", "progress", "report", "total"]


def class_report(folder: str) -> str:
    """A class's reports as one page (predictions/class_page.py)."""
    from dlviz.grading.predictions.class_page import class_report

    return class_report(folder)


def progress(folder: str = ".") -> LabProgress:
    """A reader's progress in the labs and assignments of a folder (predictions/progress.py)."""
    from dlviz.grading.predictions.progress import progress

    return progress(folder)

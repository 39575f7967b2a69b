"""What labs and assignments call: predictions that are frozen before the result is seen."""

from dlviz.grading.predict import Prediction, calibration, predict

__all__ = ["Prediction", "calibration", "predict"]

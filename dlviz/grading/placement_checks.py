"""Where notebooks find the checks of placement."""

from dlviz.grading.assignments.placement.checks import *  # noqa: F403

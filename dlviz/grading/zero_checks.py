"""Where notebooks find the checks of zero."""

from dlviz.grading.assignments.zero.checks import *  # noqa: F403

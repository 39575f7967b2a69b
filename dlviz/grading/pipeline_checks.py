"""Where notebooks find the checks of one_f_one_b."""

from dlviz.grading.assignments.one_f_one_b.checks import *  # noqa: F403

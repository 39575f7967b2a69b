"""Where notebooks find the checks of one_bit_sgd."""

from dlviz.grading.assignments.one_bit_sgd.checks import *  # noqa: F403

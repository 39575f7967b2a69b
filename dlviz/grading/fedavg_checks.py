"""Where notebooks find the checks of fedavg."""

from dlviz.grading.assignments.fedavg.checks import *  # noqa: F403

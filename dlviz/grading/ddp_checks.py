"""Where notebooks find the checks of ddp."""

from dlviz.grading.assignments.ddp.checks import *  # noqa: F403

"""Where notebooks find the checks of parameter_server."""

from dlviz.grading.assignments.parameter_server.checks import *  # noqa: F403

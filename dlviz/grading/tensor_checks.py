"""Where notebooks find the checks of tensor_parallel_mlp."""

from dlviz.grading.assignments.tensor_parallel_mlp.checks import *  # noqa: F403

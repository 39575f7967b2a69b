"""Where notebooks find the checks of mesh_3d."""

from dlviz.grading.assignments.mesh_3d.checks import *  # noqa: F403

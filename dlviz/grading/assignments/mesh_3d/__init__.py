"""A training step on a mesh of three axes."""

TITLE, LAB = "step on a mesh", "10"

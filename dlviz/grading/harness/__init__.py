"""Shared by the checks of all assignments: run a program, watch it, judge it, give feedback."""

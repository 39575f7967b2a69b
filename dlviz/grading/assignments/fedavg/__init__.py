"""Federated averaging, and rounds with a deadline."""

TITLE, LAB = "federated averaging", "12"

"""A ring all-reduce: reduce-scatter and all-gather."""

TITLE, LAB = "ring all-reduce", "02"

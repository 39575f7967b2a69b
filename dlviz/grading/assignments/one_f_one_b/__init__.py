"""The schedule 1F1B, and its interleaved form."""

TITLE, LAB = "1F1B", "09"

"""DDP: buckets, hooks, and all-reduces under backward."""

TITLE, LAB = "DDP", "03"

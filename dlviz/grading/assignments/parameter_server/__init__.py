"""Steps under a lock, and a parameter server that lets workers run ahead."""

TITLE, LAB = "parameter server", "04"

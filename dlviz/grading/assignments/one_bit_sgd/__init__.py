"""1-bit SGD: codes of one bit a value, error feedback, and codes in both directions."""

TITLE, LAB = "1-bit SGD", "05"

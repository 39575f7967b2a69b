"""Whether anybody can still go on, and what is said where nobody can."""

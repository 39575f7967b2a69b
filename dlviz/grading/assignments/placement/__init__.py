"""Which device runs what: one placement played, a greedy one, and one that is learned."""

TITLE, LAB = "Which device runs what: placements played, promised, learned", "08"

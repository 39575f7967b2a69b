"""What the ranks of a run recorded, and the Trace that it becomes."""

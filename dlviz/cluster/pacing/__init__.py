"""What time it is for a rank: the wall clock's, or that of a Machine."""

"""What the checks of all assignments share: a program is run, watched, judged and answered."""

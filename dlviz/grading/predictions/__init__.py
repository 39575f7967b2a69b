"""Predictions, from the number that a reader commits to (predict.py, withheld.py) and the file that
holds it (prediction_file.py) to the report of one reader (hand_in.py, progress.py) and of a class
(class_page.py)."""

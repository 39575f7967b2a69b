"""Predictions (predict.py, withheld.py), the file that stores them (prediction_file.py), and the
reports of one reader (hand_in.py, progress.py) and of a class (class_page.py)."""

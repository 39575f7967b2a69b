"""What a timeline shows, as data that every medium draws: layout.py has the rows and the places of
spans, visible.py which spans are drawn, bars.py their look, arrows.py the messages, pipeline.py
bubbles and the critical path, failure.py and lost_ranks.py how a run ended."""

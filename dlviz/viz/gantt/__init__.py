"""What a timeline shows, as data that every medium draws: layout.py has the rows and where spans
lie, visible.py which, bars.py their look, arrows.py the messages, pipeline.py bubbles and the
critical path, failure.py and lost_ranks.py how a run ended."""

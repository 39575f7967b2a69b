"""The drawing board of a widget: that of dlviz/board with the colours of its cells."""

from __future__ import annotations

from typing import Any

from dlviz.board.board import DrawingBoard
from dlviz.widgets.schedules.pipelines import shades


class ShadedBoard(DrawingBoard):
    """A board that says how each kind of action looks in each chunk."""

    def state(self) -> dict[str, Any]:
        return {**super().state(), "shades": shades("FBIW", self.drawing.pipeline.chunks)}

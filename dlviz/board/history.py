"""Undo and redo of drawings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlviz.board.drawing import Drawing


@dataclass(frozen=True)
class History:
    """A drawing, the earlier ones and the undone ones."""

    present: Drawing
    past: tuple[Drawing, ...] = ()
    future: tuple[Drawing, ...] = ()

    def did(self, drawing: Drawing) -> History:
        """The history with `drawing` as the present one; unchanged where it is the same."""
        if drawing == self.present:
            return self
        return History(drawing, (*self.past, replace(self.present)))  # without cached properties

    def undo(self) -> History:
        if not self.past:
            return self
        return History(self.past[-1], self.past[:-1], (self.present, *self.future))

    def redo(self) -> History:
        if not self.future:
            return self
        return History(self.future[0], (*self.past, self.present), self.future[1:])

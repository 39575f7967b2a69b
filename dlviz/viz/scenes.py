"""Which Scene shows a Trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlviz.analysis.tiles import cut_image
from dlviz.viz.scene import Scene
from dlviz.viz.sparse import SparseScene, is_of
from dlviz.viz.tiles import TiledScene

if TYPE_CHECKING:
    from dlviz.trace import Trace


def scene_of(trace: Trace, step: int | None = None, buffer: str | None = None) -> Scene:
    """The Scene of a Trace: a TiledScene where its ranks say which tiles of an image they watch, a
    SparseScene where they say how many entries of a watched vector they hold."""
    if cut_image(trace, buffer):
        return TiledScene(trace, step, buffer)
    sparse = any(is_of(fields, buffer) for fields in trace.spans.fields)
    return (SparseScene if sparse else Scene)(trace, step, buffer)

"""What the widgets share: one state, a selection that widgets of one Trace share, a saved page.

A widget's `state` is one JSON text that holds all the front end draws: no message follows, so the
same text makes a saved page. The front end does no arithmetic beyond drawing, the statistics of a
selection and a score.
"""

from __future__ import annotations

import base64
import html
import io
import json
import os
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary, WeakSet

import anywidget
import numpy as np
import traitlets

from dlviz.viz import palette
from dlviz.widgets.modules import joined, read
from dlviz.widgets.page import page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dlviz.trace import Trace

DPI = 110  # of the still picture beside a widget
STILL = """<figure class="dlv-still dlv-still-{key}" style="margin: 0">
<style>
.jp-OutputArea-child:has(+ .jp-OutputArea-child .dlv-still-{key}):not(:has(.dlv, \
.jupyter-widgets-error-widget)) {{ display: none }}
</style>
<img alt="{title}" style="max-width: 100%" src="data:image/png;base64,{png}">
<figcaption>This is a picture of the widget. Run the cell to use the widget itself.</figcaption>
</figure>"""

_names: WeakKeyDictionary[Trace, str] = WeakKeyDictionary()
_views: WeakKeyDictionary[Trace, WeakSet[View]] = WeakKeyDictionary()


class View(anywidget.AnyWidget):
    """A widget that shows one Trace.

    `selection` is what is selected, in the Trace's own numbers: {"span": row}, {"message": row},
    {"where": "file:line"} or {}; it may be set. Widgets of one Trace share it: set or chosen in
    one, it is set in all. `theme` is "auto" (as the page around), "light" or "dark".
    """

    module: ClassVar[str] = ""
    _css = read("dlviz.css")

    state = traitlets.Unicode("{}").tag(sync=True)
    selection = traitlets.Dict().tag(sync=True)
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)
    still = traitlets.Unicode("").tag(sync=True)

    def __init_subclass__(cls, **options: Any) -> None:
        if "module" in cls.__dict__:
            cls._esm = joined(cls.module)
        super().__init_subclass__(**options)

    def __init__(self, trace: Trace, state: dict[str, Any], theme: str):
        if theme not in ("auto", "light", "dark"):
            raise ValueError(f"theme={theme!r} is unknown: use 'auto', 'light' or 'dark'.")
        key = uuid.uuid4().hex
        super().__init__(state=compact(dressed(trace, state)), theme=theme, still=key)
        self.title = state["title"]
        self._together = _views.setdefault(trace, WeakSet())
        self._together.add(self)

    @traitlets.observe("selection")
    def _share_selection(self, change: Any) -> None:
        for view in list(self._together):
            view.selection = change["new"]

    def picture(self) -> Figure:
        """The picture that stands for the widget where nothing can run."""
        raise NotImplementedError

    def drawn(self) -> str:
        """The picture as a PNG file, in base64."""
        file = io.BytesIO()
        self.picture().savefig(file, format="png", dpi=DPI)
        return base64.b64encode(file.getvalue()).decode()

    def save_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the widget as one HTML file, which works with no network and no kernel."""
        path = Path(path)
        path.write_text(page(self.title, self.module, self.saved_state()), encoding="utf-8")
        return path

    def saved_state(self) -> dict[str, Any]:
        """The traits that a saved page holds."""
        return {"state": self.state, "selection": self.selection, "theme": self.theme}

    def _ipython_display_(self) -> None:
        """Show the widget, and behind it its still picture.

        A live widget hides the picture. A saved notebook that is opened again has no widget, and
        Jupyter would say "model not found": there the picture hides that.
        """
        from IPython.display import display

        widget, _ = self._repr_mimebundle_() or ({}, {})
        still = STILL.format(key=self.still, title=html.escape(self.title), png=self.drawn())
        display(
            {**widget, "text/html": ""}, raw=True
        )  # a page without a kernel shows nothing of it
        display({"text/html": still, "text/plain": self.title}, raw=True)


def dressed(trace: Trace, state: dict[str, Any]) -> dict[str, Any]:
    """A state with what every front end needs: the Trace's identity, colours and font."""
    look = {
        "themes": palette.THEMES,
        "font": palette.FONT,
        "kinds": {kind: styled(palette.style(kind)) for kind in [*palette.KINDS, ""]},
        "marks": palette.MARKS,
    }
    return {"trace": identity(trace), "look": look, **state}


def identity(trace: Trace) -> str:
    """A name that the widgets of one Trace share, and no others."""
    return _names.setdefault(getattr(trace, "trace", trace), uuid.uuid4().hex)


def compact(state: Any) -> str:
    return json.dumps(state, allow_nan=False, separators=(",", ":"))


def column(values: Any) -> Any:
    """A column for the front end: a single number where all are equal, else a list."""
    array = np.asarray(values)
    if len(array) and (array == array[0]).all():
        return array[0].item()
    return array.tolist()


def indexed(values: list[str], first: Collection[str] = ()) -> dict[str, Any]:
    """Texts as a list of the distinct ones, those of `first` in front, and a column of places."""
    there = set(values) if first else ()
    places = {value: place for place, value in enumerate(v for v in first if v in there)}
    return {"at": column([places.setdefault(v, len(places)) for v in values]), "of": [*places]}


def styled(style: palette.Style) -> dict[str, str]:
    """A style as the front ends read it."""
    return {
        "color": style.fill,
        "pattern": style.pattern,
        "ink": style.ink,
        "edge": style.edge,
        "line": style.line,
    }

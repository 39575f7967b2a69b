"""One look for every figure: how a kind of span, a rank and a line are drawn, on light and dark.

The colours are Okabe and Ito's, which people with any colour vision distinguish, and tints of them.
Where two colours come near each other under a simulated deficiency, or in print without colour, a
pattern separates the kinds: forward is plain, backward dotted, waiting hatched. Idle time is
hatched paper, so that it looks the same on light and dark. Labels on a colour are black, but white
on the blue #0072B2; the yellow is outlined, since it is faint on white.

A figure paints its own background, so that it reads the same on any page; its hues are the same on
light and dark.

Source: Okabe and Ito, "Color Universal Design", 2008, https://jfly.uni-koeln.de/color/.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

BLACK, WHITE = "#000000", "#FFFFFF"
ORANGE, SKY, GREEN = "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"

THEMES = {
    "light": {
        "paper": "#FFFFFF",
        "ink": "#1B1F24",
        "faint": "#5B6570",
        "grid": "#E1E5EA",
        "cell": "#F4F6F8",
    },
    "dark": {
        "paper": "#15191E",
        "ink": "#E9EDF1",
        "faint": "#A3AEB9",
        "grid": "#323A43",
        "cell": "#222830",
    },
}
FOLLOWING = {part: f"#{int(color[1:], 16) ^ 1:06X}" for part, color in THEMES["light"].items()}
"""The colours of theme "auto": those of light, each one step of blue off, so that `figure.STYLE`
can distinguish them from a kind's own colours and replace them by the page's."""

MARKS = {
    "wrong": VERMILION,
    "right": GREEN,
    "chosen": VERMILION,
    "marked": YELLOW,
    "accent": BLUE,
    "bright": SKY,
    "hint": BLUE,
    "halo": WHITE,
    "label": BLACK,
    "shadow": f"{BLACK}4D",
    "veil": "#80808047",
}
"""Colours of marks, on light and dark: wrong and right; chosen; marked in a text or a cell;
controls and amounts; the focus, visible on either; a hint; the ring and the text of a mark on a
kind's colour; the shadow of what lies over the page, and the veil over the part out of view (their
last two digits are opacity)."""

FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"


@dataclass(frozen=True)
class Style:
    """How one kind, or one rank's contribution, is filled: colour and plotly pattern ("": none). A
    Style that is not `solid` is only the lines of its pattern, on any paper."""

    color: str
    pattern: str = ""
    solid: bool = True

    @property
    def fill(self) -> str:
        """What lies below the lines of the pattern."""
        return self.color if self.solid else "rgba(0, 0, 0, 0)"

    @property
    def ink(self) -> str:
        """The colour of a label on it."""
        return WHITE if self.color == BLUE else BLACK if self.solid else self.color

    @property
    def edge(self) -> str:
        """A darker shade: it separates bars side by side, and thin bars keep their hue."""
        return self._darker(55) if self.solid else self.color

    @property
    def line(self) -> str:
        """The colour of the pattern: a little darker, so that a label still reads on it."""
        return self._darker(80) if self.solid else self.color

    def _darker(self, percent: int) -> str:
        shades = (int(self.color[i : i + 2], 16) * percent // 100 for i in (1, 3, 5))
        return "#" + "".join(f"{shade:02X}" for shade in shades)

    def marker(self) -> dict[str, Any]:
        """The marker of a plotly bar series drawn in this style."""
        return {
            "color": self.fill,
            "line": {"color": self.edge, "width": 1.4 if self.color == YELLOW else 0.6},
            "pattern": {
                "shape": self.pattern,
                "fgcolor": self.line,
                "bgcolor": self.fill,
                "size": 7,
                "solidity": 0.16,
            },
        }


KINDS = {
    "step": Style("#F1F3F5"),
    "phase": Style("#BFC6CD"),
    "data": Style("#A9DDCB", "."),
    "forward": Style(SKY),
    "recompute": Style(SKY, "/"),
    "backward": Style(ORANGE, "."),
    "backward_input": Style("#F7D183", "-"),
    "backward_weight": Style("#C98A00", "/"),
    "update": Style(GREEN),
    "compress": Style(YELLOW),
    "copy": Style("#B8A2E3", "-"),
    "collective": Style(BLUE),
    "send": Style(VERMILION),
    "recv": Style(PURPLE),
    "wait": Style("#B7BEC6", "/"),
    "idle": Style("#7D858E", "\\", solid=False),
    "lock": Style("#EDB590", "x"),
}
"""Every kind of span a Trace may hold, in the order of a legend."""

OTHER = Style("#9AA3AD", "+")
UNDECODED = Style("#D5D9DE", "x")
HATCH = "#5D656E"  # the lines of a small pattern, which have to distinguish two ranks

_RANKS = (SKY, ORANGE, GREEN, PURPLE, YELLOW, BLUE, VERMILION)
_RANK_PATTERNS = ("", "/", ".", "x")

METHODS = {  # a strategy -> the name readers know, its hue, its mark
    "sync_server": ("synchronous", BLUE, "circle"),
    "stale_synchronous": ("stale-synchronous", SKY, "square"),
    "async_server": ("asynchronous", VERMILION, "diamond"),
    "hogwild": ("Hogwild", ORANGE, "x"),
    "easgd": ("EASGD", GREEN, "triangle-up"),
    "late_all_reduce": ("late all-reduce", "#9E59FE", "triangle-down"),
    "local_sgd": ("local SGD", PURPLE, "pentagon"),
    "gossip": ("gossip", "#875E31", "star"),
    "ensemble": ("ensemble", "#68737A", "cross"),
}
"""How ranks learn from each other. A name in a chart begins with the title; its knob follows:
"local SGD, H = 8"."""

FORMS = {  # how ranks share a layer -> the name readers know, its hue, its mark
    "data": ("data parallel", SKY, "circle"),
    "partition_output": ("partition output", ORANGE, "square"),
    "reduce_output": ("reduce output", PURPLE, "diamond"),
}
AXES = {  # an axis of a mesh -> the name readers know, its hue
    "dp": ("data parallel", SKY),
    "pp": ("pipeline", GREEN),
    "tp": ("tensor parallel", ORANGE),
}
MEMORY = {  # what a rank holds -> its look: that of the pass or the message that makes it
    "parameters": Style(PURPLE),
    "gradients": KINDS["backward"],
    "optimizer": KINDS["update"],
    "activations": KINDS["forward"],
    "communication": KINDS["collective"],
    "other": OTHER,
}
FATES = {  # what became of a client in a round -> its words, its mark, its hue
    "answered": ("its update is in the new weights", "square", BLUE),
    "late": ("late: the round had closed", "x-thin", VERMILION),
    "taken": ("late before, taken in this round", "diamond", ORANGE),
    "rejected": ("its update was rejected", "circle", PURPLE),
    "lost": ("lost", "cross", BLACK),
}
LINES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, "#858D96")  # on light and dark
TRAFFIC = ("#C9E4F6", SKY, BLUE, "#00507F")  # few bytes to many, on light and dark
GROWTH = ((0.0, BLUE), (0.5, "#D6EAF8"), (0.5, "#FBE7CC"), (1.0, VERMILION))
"""From shrinking to growing, 1 in the middle; on light and dark."""
STROKES = {  # plotly's name of a line -> the dashes and gaps in an SVG
    "solid": "", "dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3", "longdash": "12 4",
    "longdashdot": "12 3 2 3",
}  # fmt: skip
DASHES = (*STROKES,)
LEGEND_LINES = {"itemsizing": "trace", "itemwidth": 56}  # long enough to distinguish dashes
LEGEND_BELOW = {
    "orientation": "h",
    "yref": "container",
    "y": 0.01,
    "yanchor": "bottom",
    "x": 0,
    "xanchor": "left",
}


def style(kind: str) -> Style:
    """The style of a kind of span; a caller's own kinds share one grey."""
    return KINDS.get(kind, OTHER)


def uses(names: Iterable[str]) -> dict[str, Style]:
    """The look of each use of memory, from the floor up: those of MEMORY first, in its order; a
    caller's own names take the colours of lines, hatched."""
    names = [*names]
    own = [name for name in names if name not in MEMORY]
    looks = {name: Style(LINES[i % len(LINES)], "/") for i, name in enumerate(own)}
    return {**{name: MEMORY[name] for name in MEMORY if name in names}, **looks}


def axis(name: str) -> tuple[str, Style]:
    """A mesh's axis as readers know it, and its style; axes of other names share one grey."""
    known = AXES.get(name)
    return (f"{name}, {known[0]}", Style(known[1])) if known else (name, OTHER)


def shade(style: Style, chunk: int, chunks: int) -> Style:
    """The style of a kind in the `chunk`-th of a rank's `chunks` stages: lighter from one to the
    next, the last one halfway to white."""
    share = chunk / (2 * max(chunks - 1, 1))
    parts = (int(style.color[i : i + 2], 16) for i in (1, 3, 5))
    return Style("#" + "".join(f"{round(p + (255 - p) * share):02X}" for p in parts), style.pattern)


def pale(style: Style) -> Style:
    """The style of the predicted beside the measured: halfway to white, on light and on dark, so
    that a label still reads on it."""
    return shade(style, 1, 2)


def rank_style(rank: int) -> Style:
    """The style of what rank `rank` contributed: seven colours, then the same seven with a
    pattern."""
    turn, color = divmod(rank, len(_RANKS))
    return Style(_RANKS[color], _RANK_PATTERNS[turn % len(_RANK_PATTERNS)])


def line(place: int) -> tuple[str, str]:
    """The colour and the dash of line number `place` of a chart."""
    dash = (place + place // len(DASHES)) % len(DASHES)
    return LINES[place % len(LINES)], DASHES[dash]


def stroke(place: int) -> dict[str, str]:
    """The same for an SVG."""
    color, dash = line(place)
    return {"color": color, "dash": STROKES[dash]}


class MethodLook(NamedTuple):
    """How a method is drawn: `symbol` is plotly's, `turn` counts a method's forms in a chart."""

    color: str
    dash: str
    symbol: str
    turn: int


def methods(names: Iterable[str]) -> dict[str, MethodLook]:
    """The look of each method in a chart: one hue and mark per method; dashes and open marks
    distinguish its forms ("local SGD, H = 8", "local SGD, H = 32"). Other names take the hues that
    are left."""
    names = list(names)
    own = {name: _method(name) for name in names}
    used = {method[1] for method in own.values() if method}
    spare = [color for color in LINES if color not in used] or list(LINES)
    looks: dict[str, MethodLook] = {}
    seen: Counter[str] = Counter()
    others = [name for name in names if not own[name]]
    for name in names:
        method = own[name]
        if method:
            title, color, symbol = method
            turn = seen[title]
            seen[title] += 1
            looks[name] = MethodLook(color, DASHES[turn % len(DASHES)], symbol, turn)
        else:
            place = others.index(name)
            color = spare[place % len(spare)]
            looks[name] = MethodLook(color, DASHES[(place + 1) % len(DASHES)], "hexagon", 0)
    return looks


def _method(name: str) -> tuple[str, str, str] | None:
    """The method that the name begins with."""
    begins = name.lower()
    known = METHODS.values()
    return next((method for method in known if begins.startswith(method[0].lower())), None)


def colors(theme: str) -> dict[str, str]:
    """Paper, ink, faint ink, grid and empty cell of a theme. Raises ValueError."""
    themes = {"auto": FOLLOWING, **THEMES}
    if theme not in themes:
        known = ", ".join(map(repr, themes))
        raise ValueError(f"theme={theme!r} is not a theme of the figures: use one of {known}.")
    return themes[theme]

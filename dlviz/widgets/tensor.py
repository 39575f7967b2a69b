"""TensorExplorer: where to cut one linear layer between ranks, or an MLP; who has which block of
each matrix, and what a rank sends.

    form, ranks, B, C_in, C_out
        X, W, Y and their gradients, a block of each rank      the map: who sends least over B, C_out
        bytes that a rank sends forward, backward, in the gradient sync, by each form
        Run it: the same on real ranks, paced; its messages in a player

The arithmetic is in forms.py, the blocks are in blocks.py, the run is in layer_run.py.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import traitlets

from dlviz.trace import Trace
from dlviz.viz import palette
from dlviz.viz.scene import Scene
from dlviz.widgets.blocks import picture
from dlviz.widgets.explorer import Explorer
from dlviz.widgets.forms import (
    DEVICE,
    FORMS,
    LARGEST,
    LINK,
    NAMES,
    RANKS,
    SIZES,
    WAYS,
    answer,
    check,
    cost_map,
    prices,
    sent,
    too_long,
)
from dlviz.widgets.layer_run import run
from dlviz.widgets.player import player_state
from dlviz.widgets.running import Found, Tell
from dlviz.widgets.view import _views, compact, dressed, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEPT = 8  # runs that can be shown again


class TensorExplorer(Explorer):
    """Choose in which form ranks share a layer, how many they are and how large it is; see who has
    which block of each matrix and what a rank sends; run it.

    `form` is "data", "partition_output" (X is gathered from its rows), "partition_output_whole" (X
    is on all ranks) or "reduce_output" of a linear layer, "mlp_data" or "mlp" (column-parallel, GELU,
    row-parallel) of an MLP. `batch` is B, the rows of X, `inputs` C_in, `outputs` C_out; of an MLP
    C_in is its hidden size, C_out its inner. All may be set later on; a value that cannot be is
    told in the widget and changes nothing else. `run()` does what the button does; the last runs
    are shown again where their controls are chosen, and on a saved page. `measured` is the Trace of
    the last run, or None. Raises ValueError where a first value cannot be.
    """

    module = "tensor/index"
    controls = ("form", "ranks", *NAMES)

    form = traitlets.Any("partition_output").tag(sync=True)
    ranks = traitlets.Any(4).tag(sync=True)
    batch = traitlets.Any(64).tag(sync=True)
    inputs = traitlets.Any(512).tag(sync=True)
    outputs = traitlets.Any(2048).tag(sync=True)
    player = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        form: str = "partition_output",
        ranks: int = 4,
        batch: int = 64,
        inputs: int = 512,
        outputs: int = 2048,
        *,
        theme: str = "auto",
    ):
        now: dict[str, Any] = dict(
            zip(self.controls, (form, ranks, batch, inputs, outputs), strict=True)
        )
        check(**now)
        self._runs: list[tuple[dict[str, Any], dict[str, Any], Trace]] = []  # the newest last
        super().__init__(Trace(), now, theme)

    @property
    def measured(self) -> Trace | None:
        return self._measured

    def check(self, values: dict[str, Any]) -> None:
        check(**values)

    def moved(self, values: dict[str, Any]) -> None:
        self.forget()
        self._now = values

    def work(self) -> Any:
        long = too_long(**self._now)
        if long:
            raise ValueError(long)
        return partial(self._work, dict(self._now))

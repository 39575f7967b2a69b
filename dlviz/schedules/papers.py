"""Where the schedules of the zoo were published, with the papers' addresses.

`inference` has none: it is the forward half of any of them.
"""

from __future__ import annotations

from typing import NamedTuple


class Paper(NamedTuple):
    """A paper: who, what, where, when; and its address."""

    cited: str
    address: str


_GPIPE = Paper("Huang et al., GPipe, NeurIPS 2019", "https://arxiv.org/abs/1811.06965")
_ZERO_BUBBLE = Paper(
    "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024", "https://arxiv.org/abs/2401.10241"
)

PAPERS = {
    "naive": _GPIPE,
    "gpipe": _GPIPE,
    "1f1b": Paper(
        "Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, ICML 2021",
        "https://arxiv.org/abs/2006.09503",
    ),
    "interleaved": Paper(
        "Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using "
        "Megatron-LM, SC 2021",
        "https://arxiv.org/abs/2104.04473",
    ),
    "looped_bfs": Paper(
        "Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023",
        "https://arxiv.org/abs/2211.05953",
    ),
    "pipedream": Paper(
        "Narayanan et al., PipeDream, SOSP 2019", "https://doi.org/10.1145/3341301.3359646"
    ),
    "zb_h1": _ZERO_BUBBLE,
    "zb_h2": _ZERO_BUBBLE,
    "interleaved_zb": _ZERO_BUBBLE,
    "zbv": _ZERO_BUBBLE,
    "dualpipev": Paper(
        "DeepSeek-AI, DeepSeek-V3 Technical Report, 2024", "https://arxiv.org/abs/2412.19437"
    ),
}
"""By name, for each of `dlviz.schedules.NAMES` that has one."""

"""What it takes to bring a layer's weights from the host while the layer before is computed.

    prefetch 0, one buffer          copy  |0|   |1|   |2|
                                    comp    |0|   |1|   |2|
    prefetch 1, two buffers         copy  |0|1| |2|
                                    comp    |0 |1 |2 |

One copy lane brings the layers in order. A copy waits for a free buffer: that of layer i for the
end of layer i - prefetch - 1. A layer waits for its copy and for the layer before.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlviz.counts import check_amounts, check_counts, closed_form, of_numbers
from dlviz.machine.topology import require


@of_numbers
def stream_seconds(compute: Sequence[float], copy: Sequence[float], prefetch: int) -> float:
    """Seconds until the last layer is computed: layer i takes compute[i] s, its copy copy[i] s, and
    there are prefetch + 1 buffers.

    Raises ValueError for seconds that are negative or not finite (a link without bandwidth), lists
    of unequal lengths, and a prefetch below 0."""
    check_counts(0, prefetch=prefetch)
    check_amounts(compute=compute, copy=copy)
    if len(compute) != len(copy):
        raise ValueError(
            f"compute has {len(compute)} layers and copy {len(copy)}: give the seconds of each "
            "layer in both."
        )
    copied, ends = 0.0, [0.0] * (prefetch + 1)  # a buffer is free from the start
    for computes, copies in zip(compute, copy, strict=True):
        copied = max(copied, ends[-prefetch - 1]) + copies
        ends.append(max(copied, ends[-1]) + computes)
    return ends[-1]


@closed_form
def tokens_to_hide(flops: float, bandwidth: float) -> float:
    """Tokens that a forward needs so that a device of `flops` FLOP/s computes a layer for as long
    as a link of `bandwidth` bytes/s brings its weights: flops / bandwidth.

    Assumes weights of 2 bytes, 2 FLOP for each weight and token (no attention scores), both at the
    peak that data sheets state, prefetching, and a copy lane that carries nothing else: what a real
    device reaches of its peak, and a link of its, multiply the result. A backward has twice the
    FLOP, so that it needs half as many tokens, until gradients leave by the same lane.

    Raises ValueError for a speed or bandwidth that is not above 0."""
    require("tokens_to_hide", "flops", flops, zero=False, infinite=False)
    require("tokens_to_hide", "bandwidth", bandwidth, zero=False, infinite=False)
    return flops / bandwidth

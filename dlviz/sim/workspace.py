"""How to cut a mini-batch so that a convolution's fast methods fit a limit on their workspace.

    limit          |---------------|
    whole batch    |##im2col###############|     does not fit; |direct| fits, and is slow
    three pieces   |##im2col##|  |##im2col##|  |##im2col##|    one after the other, each freed

Symbols: b examples, C channels, F filters of K x K, H x W inputs, H' x W' outputs; float32.

    im2col   b C K² H' W'                     the inputs of every output, as columns of a matrix
    fft      spectra of H (W/2 + 1) complex values: b C and F C of them, and b F of the products
    direct   0                                adds inputs times weights to the outputs, in place

Source: Y. Oyama et al., "Accelerating Deep Learning Frameworks with Micro-batches", CLUSTER 2018
(µ-cuDNN), up to 4.54 times as fast for single layers of DeepBench.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlviz.counts import check_amounts, check_counts, closed_form, of_numbers

METHODS = ("im2col", "fft", "direct")
ITEMSIZE = 4  # bytes of a float32
Costs = Mapping[tuple[str, int], tuple[float, float]]
Cut = list[tuple[str, int]]


@closed_form
def workspace_bytes(
    method: str,
    batch: int,
    channels: int,
    filters: int,
    kernel: int,
    height: int,
    width: int,
    stride: int = 1,
    padding: int = 0,
) -> int:
    """The most bytes that the forward of a convolution of `batch` examples by a method of METHODS
    (`parallel.microbatched`) holds besides input, weights and output; `kernel` is one side of a
    square, `height` and `width` are those of the input without its `padding`.

    The FFT's terms are the peaks of its four phases: a spectrum beside its reordered copy, of the
    inputs, then of the weights; the product; the inverse, with what it returns before the crop.

    Raises ValueError for another method, sizes below 1, and a kernel above the padded input."""
    if method not in METHODS:
        raise ValueError(f"method={method!r} is not known: use {', '.join(map(repr, METHODS))}.")
    check_counts(batch=batch, channels=channels, filters=filters, kernel=kernel, stride=stride)
    check_counts(height=height, width=width)
    check_counts(0, padding=padding)
    height, width = height + 2 * padding, width + 2 * padding
    if kernel > min(height, width):
        raise ValueError(
            f"kernel={kernel!r} is above the padded input of {height} x {width}: use a smaller one."
        )
    if method == "direct":
        return 0
    if method == "im2col":
        outputs = ((height - kernel) // stride + 1) * ((width - kernel) // stride + 1)
        return batch * channels * kernel**2 * outputs * ITEMSIZE
    spectrum = height * (width // 2 + 1) * 2 * ITEMSIZE
    x, w, y = (n * spectrum for n in (batch * channels, filters * channels, batch * filters))
    return max(2 * x, x + 2 * w, x + w + y, 2 * y + batch * filters * height * width * ITEMSIZE)


@of_numbers
def best_cut(costs: Costs, batch: int, limit: float) -> tuple[float, Cut]:
    """The fastest cut of a mini-batch of `batch` examples into pieces of which none takes more than
    `limit` bytes: its seconds, and (method, size) of each piece, the largest first. `costs` holds
    (seconds, bytes) by (method, size). Of cuts as fast, the one of fewest pieces.

    A dynamic program over the examples: the best cut of n examples is a piece of some size and the
    best cut of the rest; about batch * len(costs) steps.

    Raises ValueError where no cut keeps to the limit, with the bytes that are missing, where the
    sizes add up to no such batch, and for invalid costs."""
    check_counts(batch=batch)
    check_amounts(limit=limit)
    for (method, size), (seconds, nbytes) in costs.items():
        check_counts(1, f"costs of {method!r}: ", size=size)
        check_amounts(f"costs of {method!r}, {size}: ", seconds=seconds, nbytes=nbytes)
    found = _fastest({piece: cost for piece, cost in costs.items() if cost[1] <= limit}, batch)
    if found is not None:
        return found[0], sorted(found[2], key=lambda piece: -piece[1])
    for least in sorted({nbytes for _, nbytes in costs.values() if nbytes > limit}):
        if _fastest({p: cost for p, cost in costs.items() if cost[1] <= least}, batch):
            raise ValueError(
                f"limit={limit!r} is met by no cut of batch={batch}: {least - limit:g} bytes are "
                f"missing; give {least:g} or more, or costs of smaller pieces."
            )
    raise ValueError(
        f"batch={batch!r} is no sum of the sizes {sorted({size for _, size in costs})} in costs: "
        "measure a piece of size 1."
    )


def _fastest(costs: Costs, batch: int) -> tuple[float, int, Cut] | None:
    """Seconds, pieces and cut of the fastest cut by these costs, if there is one."""
    best: list[tuple[float, int, Cut] | None] = [(0.0, 0, [])]
    for examples in range(1, batch + 1):
        options = [
            (rest[0] + seconds, rest[1] + 1, [*rest[2], piece])
            for piece, (seconds, _) in costs.items()
            if piece[1] <= examples and (rest := best[examples - piece[1]]) is not None
        ]
        best.append(min(options, default=None))
    return best[batch]

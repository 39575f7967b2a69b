"""What ranks send for a convolution cut by samples, by the rows and columns of the images, by
channels and by filters.

    x (N, C, H, W)  *  w (F, C, K, K)  =  y (N, F, H', W')        s stride, d dilation, P padding

    rows       output rows lo to hi-1 read input rows lo s - P to (hi-1) s - P + d (K-1)
    channels   p_c: each rank's y is a sum over its channels: a reduce-scatter
    filters    p_f: each rank needs all the channels of its rank of p_c: an all-gather of x

    p_f = 1    stationary-x: x stays, y is summed
    p_c = 1    stationary-y: x is gathered, y stays
    both > 1   stationary-w: both move, each among fewer ranks

An image is cut as `torch.tensor_split` cuts, and so are output rows, of which each rank computes
its block. `dlviz.parallel.convolution` sends what this predicts.

Source: N. Dryden et al., "Improving Strong-Scaling of CNN Training by Exploiting Finer-Grained
Parallelism", IPDPS 2019, and "Channel and Filter Parallelism for Large-Scale CNN Training", SC
2019; A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlviz.counts import check_counts, closed_form, of_numbers

ITEMSIZE = 4  # bytes of a float32
Rows = tuple[int, int]  # the first, and the end (exclusive)


@of_numbers
def halo_rows(
    rows: int, ranks: int, kernel: int, stride: int = 1, dilation: int = 1, padding: int = 0
) -> list[tuple[int, int]]:
    """Input rows, (above, below) its own block, that each of `ranks` ranks receives for its block
    of output rows, of an image of `rows` rows.

    Raises ValueError for sizes below 1, and a kernel larger than the padded image."""
    return [
        (max(min(end, own[0]) - first, 0), max(end - max(first, own[1]), 0))
        for own, (first, end) in _read(rows, ranks, kernel, stride, dilation, padding)
    ]


@of_numbers
def halo_cells(
    height: int,
    width: int,
    grid: Sequence[int],
    kernel: int,
    stride: int = 1,
    dilation: int = 1,
    padding: int = 0,
) -> list[int]:
    """Cells of an image (`height`, `width`), corners too, that each rank of a `grid` of (down,
    across) ranks receives, row by row of the grid. Raises ValueError as `halo_rows`."""
    check_counts(height=height, width=width)
    down, across = (
        [(end - first, max(min(end, own[1]) - max(first, own[0]), 0)) for own, (first, end) in read]
        for read in (
            _read(length, ranks, kernel, stride, dilation, padding)
            for length, ranks in zip((height, width), grid, strict=True)
        )
    )  # of each rank: the rows that it reads, and of them its own
    return [r * c - own_r * own_c for r, own_r in down for c, own_c in across]


@closed_form
def channel_filter_words(
    samples: int, channels: int, filters: int, height: int, width: int, p_f: int, p_c: int
) -> float:
    """Elements that each of p_f x p_c ranks sends in the forward of a convolution whose output has
    the `height` and `width` of its input: of x among p_f ranks and of y among p_c,
    ((p_f - 1) C + (p_c - 1) F) N H W / p. Raises ValueError for sizes below 1."""
    check_counts(samples=samples, channels=channels, filters=filters, height=height, width=width)
    check_counts(p_f=p_f, p_c=p_c)
    moved = (p_f - 1) * channels + (p_c - 1) * filters
    return moved * samples * height * width / (p_f * p_c)


@closed_form
def segmented_share(p_n: int, p_f: int) -> float:
    """How much of the weights, as a share of |w|, a rank of p_n x p_f sends to sum dw over the p_n
    ranks that hold the same filters: 2 (p_n - 1) / p_n / p_f. Raises ValueError for sizes below
    1."""
    check_counts(p_n=p_n, p_f=p_f)
    return 2 * (p_n - 1) / p_n / p_f


@of_numbers
def one_weird_trick(
    batch: int, activations: int, parameters: int, ranks: int
) -> tuple[float, float]:
    """Bytes that a rank sends in a step for the dense layers of a CNN, (hybrid, data), in float32:
    cut over the `ranks`, which exchange the `activations` that enter them and their gradients, for
    the `batch` images of every rank; and as a ring all-reduce of `parameters` gradients.

        hybrid  2 (K-1) b D · 4        data  2 (K-1)/K |θ| · 4

    Raises ValueError for sizes below 1."""
    check_counts(batch=batch, activations=activations, parameters=parameters, ranks=ranks)
    hybrid = 2 * (ranks - 1) * batch * activations * ITEMSIZE
    return hybrid, 2 * (ranks - 1) / ranks * parameters * ITEMSIZE


@closed_form
def weird_trick_wins_below(activations: int, parameters: int, ranks: int) -> float:
    """The images on a rank below which `one_weird_trick` sends less than data parallelism,
    |θ|/(K D); 0 for one rank, which sends nothing. Raises ValueError for sizes below 1."""
    check_counts(activations=activations, parameters=parameters, ranks=ranks)
    return parameters / (ranks * activations) if ranks > 1 else 0.0


def needed(
    lo: int, hi: int, kernel: int, stride: int = 1, dilation: int = 1, padding: int = 0
) -> Rows:
    """The input rows that output rows `lo` to `hi` - 1 read: the first, and the end (exclusive).
    Not clipped to the image: rows below 0 and past its end are padding."""
    first = lo * stride - padding
    return first, (hi - 1) * stride - padding + dilation * (kernel - 1) + 1 if hi > lo else first


def blocks(length: int, parts: int) -> list[Rows]:
    """The rows of each of `parts` blocks of `length`; the first ones have one more, the last ones
    may be empty."""
    least, more = divmod(length, parts)
    begins = [part * least + min(part, more) for part in range(parts + 1)]
    return [*zip(begins, begins[1:], strict=False)]


def output_length(
    length: int, kernel: int, stride: int = 1, dilation: int = 1, padding: int = 0
) -> int:
    """Rows of the output of `length` rows. Raises ValueError for sizes below 1, and a kernel larger
    than the padded image."""
    check_counts(kernel=kernel, stride=stride, dilation=dilation)
    check_counts(0, padding=padding)
    span = dilation * (kernel - 1) + 1
    last = length + 2 * padding - span  # where the last window may begin
    if last < 0:
        raise ValueError(
            f"kernel={kernel!r} with dilation={dilation!r} spans {span} rows and the padded image "
            f"has {length + 2 * padding}: use a smaller kernel, or padding."
        )
    return last // stride + 1


def _read(
    rows: int, ranks: int, kernel: int, stride: int, dilation: int, padding: int
) -> list[tuple[Rows, Rows]]:
    """Of each rank the rows that it owns, and those that it reads."""
    check_counts(rows=rows, ranks=ranks)
    outputs = blocks(output_length(rows, kernel, stride, dilation, padding), ranks)
    read = [needed(lo, hi, kernel, stride, dilation, padding) for lo, hi in outputs]
    clipped = [(min(max(lo, 0), rows), min(max(hi, 0), rows)) for lo, hi in read]
    return [*zip(blocks(rows, ranks), clipped, strict=True)]

"""What recomputation by segments holds: activations of layers, each layer's output one unit.

    forward     |1 2 3 4|5 6 7 8|9 ..      each of k segments leaves only its input
    backward                  ..|5 6 7 8|  a segment runs again, then its backward

At the peak a rank holds the inputs of all k segments and the ceil(n/k) layers of one: least for k
about the square root of n. Every layer's forward is computed once more: 4/3 of a step's time where
the backward takes twice the forward.

Source: T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
"""

from __future__ import annotations

from dlviz.counts import check_counts, closed_form


@closed_form
def recompute_peak(layers: int, segments: int) -> int:
    """Layer outputs held at the peak of a step of `layers` equal layers in `segments`: segments +
    ceil(layers / segments). ValueError for counts below 1, and more segments than layers."""
    check_segments(layers, segments)
    return segments + -(-layers // segments)


@closed_form
def best_segments(layers: int) -> int:
    """Of the segment counts that make `recompute_peak` least, the smallest. ValueError for fewer
    than 1 layer."""
    check_counts(layers=layers)
    return min(range(1, layers + 1), key=lambda segments: recompute_peak(layers, segments))


def check_segments(layers: int, segments: int) -> None:
    """Raise ValueError unless `segments` segments of `layers` layers have a layer each."""
    check_counts(layers=layers, segments=segments)
    if segments > layers:
        raise ValueError(
            f"segments={segments!r} is more than the {layers} layers: a segment needs a layer; use "
            f"{layers} or fewer."
        )

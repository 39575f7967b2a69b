"""The layers of known CNNs, as sizes: a dense layer is a convolution of which one window is the
whole input.

    net_layers("alexnet", samples=128)["conv2"].multiplications

Pooling, normalisation and activations are not layers here: they multiply little, and each is cut as
the layer before it. Of ResNet-50 these are the 50 layers that its name counts; the projections in
four of its shortcuts are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dlviz.counts import check_counts, of_numbers
from dlviz.sim.convolution import output_length

SIZES = ("samples", "channels", "filters", "height", "width")


@dataclass(frozen=True)
class LayerShape:
    """The sizes of a convolution with square kernels, or of a dense layer. Raises ValueError for
    sizes below 1, a kernel larger than the padded input, and groups that do not divide channels and
    filters."""

    samples: int
    channels: int
    filters: int
    height: int
    width: int
    kernel: int = 3
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    bias: bool = True

    def __post_init__(self) -> None:
        sizes = (*SIZES, "kernel", "stride", "dilation", "groups", "padding")
        for name in sizes:
            check_counts(int(name != "padding"), **{name: getattr(self, name)})
            object.__setattr__(self, name, int(getattr(self, name)))  # numpy's may overflow
        if self.channels % self.groups or self.filters % self.groups:
            raise ValueError(
                f"groups={self.groups} do not divide channels={self.channels} and filters="
                f"{self.filters}: each group needs as many of both as the others."
            )
        _ = self.outputs

    @property
    def input(self) -> tuple[int, int, int, int]:
        """Samples, channels, height and width."""
        return self.samples, self.channels, self.height, self.width

    @property
    def outputs(self) -> tuple[int, int]:
        """Height and width of the output."""
        window = self.kernel, self.stride, self.dilation, self.padding
        return output_length(self.height, *window), output_length(self.width, *window)

    @property
    def span(self) -> int:
        """Rows of the input that an output reads."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def dense(self) -> bool:
        """Whether every output reads the whole input."""
        return self.outputs == (1, 1) and self.kernel >= max(self.height, self.width)

    @property
    def weights(self) -> int:
        return self.filters * self.channels // self.groups * self.kernel**2

    @property
    def parameters(self) -> int:
        return self.weights + self.filters * self.bias

    @property
    def multiplications(self) -> int:
        """Of the forward."""
        height, width = self.outputs
        return self.samples * self.weights * height * width


class KnownNet(NamedTuple):
    """A network's layers by name, each for one image, and where their sizes come from."""

    layers: Mapping[str, LayerShape]
    source: str


def _alexnet(size: int, widths: tuple[int, ...], padding: int, groups: int) -> dict[str, Any]:
    """AlexNet for images of `size` rows: five convolutions of `widths` filters."""
    first, second, *rest = widths
    found = {
        "conv1": LayerShape(1, 3, first, size, size, 11, 4, padding),
        "conv2": LayerShape(1, first, second, 27, 27, 5, padding=2, groups=groups),
    }
    channels = second
    for number, (filters, cut) in enumerate(zip(rest, (1, groups, groups), strict=True), 3):
        found[f"conv{number}"] = LayerShape(1, channels, filters, 13, 13, padding=1, groups=cut)
        channels = filters
    return {
        **found,
        "dense1": LayerShape(1, channels, 4096, 6, 6, 6),
        "dense2": LayerShape(1, 4096, 4096, 1, 1, 1),
        "dense3": LayerShape(1, 4096, 1000, 1, 1, 1),
    }


def _resnet50() -> dict[str, LayerShape]:
    found = {"conv1": LayerShape(1, 3, 64, 224, 224, 7, 2, 3, bias=False)}
    channels, size = 64, 56
    for stage, blocks in enumerate((3, 4, 6, 3), 2):
        inner = 2 ** (stage + 4)
        for block in range(1, blocks + 1):
            stride = 2 if stage > 2 and block == 1 else 1
            name = f"conv{stage}_{block}"
            found[f"{name}a"] = LayerShape(1, channels, inner, size, size, 1, bias=False)
            found[f"{name}b"] = LayerShape(1, inner, inner, size, size, 3, stride, 1, bias=False)
            channels, size = 4 * inner, size // stride
            found[f"{name}c"] = LayerShape(1, inner, channels, size, size, 1, bias=False)
    return {**found, "dense": LayerShape(1, 2048, 1000, 1, 1, 1)}


NETS: dict[str, KnownNet] = {
    "alexnet": KnownNet(
        _alexnet(224, (64, 192, 384, 256, 256), padding=2, groups=1),
        "torchvision.models.alexnet; A. Krizhevsky, One weird trick, 2014",
    ),
    "alexnet_2012": KnownNet(
        _alexnet(227, (96, 256, 384, 384, 256), padding=0, groups=2),
        "A. Krizhevsky, I. Sutskever, G. Hinton, NIPS 2012; two groups, one on each of its GPUs; "
        "227 rows, with which its 11 x 11 windows at stride 4 give 55",
    ),
    "small_alexnet": KnownNet(
        {
            "conv1": LayerShape(1, 1, 16, 32, 32, padding=1),
            "conv2": LayerShape(1, 16, 16, 32, 32, padding=1),
            "conv3": LayerShape(1, 16, 32, 16, 16, padding=1),
            "dense1": LayerShape(1, 32, 128, 8, 8, 8),
            "dense2": LayerShape(1, 128, 10, 1, 1, 1),
        },
        "dlviz.models.SmallAlexNet: digits enlarged to 32 x 32",
    ),
    "resnet50": KnownNet(
        _resnet50(),
        "torchvision.models.resnet50, the stride in the 3 x 3 layers; K. He et al., CVPR 2016",
    ),
}


@of_numbers
def net_layers(net: str, samples: int = 1) -> dict[str, LayerShape]:
    """The layers of a net of NETS by name, for `samples` images. Raises ValueError for another net,
    and fewer than one image."""
    if net not in NETS:
        raise ValueError(f"net={net!r} is not known: use {', '.join(map(repr, NETS))}.")
    return {name: replace(each, samples=samples) for name, each in NETS[net].layers.items()}


def convolution_share(shapes: Iterable[LayerShape]) -> tuple[float, float]:
    """Which share of the multiplications and of the parameters of these layers is in convolutions.
    Raises ValueError for no layer."""
    every = [*shapes]
    if not every:
        raise ValueError("shapes has no layer: give one or more, as net_layers(net).values().")
    own = [each for each in every if not each.dense]
    multiplied, trained = (
        sum(getattr(each, what) for each in own) / sum(getattr(each, what) for each in every)
        for what in ("multiplications", "parameters")
    )
    return multiplied, trained

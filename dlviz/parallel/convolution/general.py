"""A convolutional network in which every layer has a cut of its own.

On a mesh of ranks each layer has a Distribution: over which axes its samples, channels, filters,
rows and columns are cut. A layer takes its input under its own distribution, and where the layer
before has left it under another one, the input is redistributed:

    conv 0, H over p           conv 3, C over p             head, N over p
    halo | convolve | switch | convolve | sum, scatter | switch | linear, loss

What each layer does then is in layers.py and other_layers.py.

Source: N. Dryden, N. Maruyama et al., "Channel and filter parallelism for large-scale CNN
training", SC 2019, sections 3 and 4. In PyTorch: a module whose parameters are DTensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn

from dlviz.cluster import Comm, Mesh
from dlviz.models import Residual
from dlviz.models.options import squares
from dlviz.parallel.convolution.checks import Shape, check_flatten, warn_of_idle
from dlviz.parallel.convolution.cut_layer import CutLayer, HeldBlock
from dlviz.parallel.convolution.distribution import Distribution
from dlviz.parallel.convolution.layers import DistributedConv2d
from dlviz.parallel.convolution.other_layers import (
    Chain,
    CutNorm,
    CutPool,
    LocalLayer,
    ResidualSum,
)
from dlviz.parallel.convolution.redistribution import redistribute
from dlviz.parallel.step.replicas import check_same_model
from dlviz.parallel.tensor.train import ELEMENTWISE

Distributions = Distribution | Mapping[str, Distribution] | None
POOLS = nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d
OF_IMAGES = nn.Conv2d, nn.BatchNorm2d, *POOLS


class DistributedNet(Chain):
    """A net that is cut. Called with a whole batch, which every rank has, it gives the rank's rows
    of the outputs, those of `rows`."""

    def __init__(self, mesh: Mesh, layers: Mapping[str, CutLayer]):
        super().__init__(mesh, layers)
        self.head = Distribution(N=tuple(vars(mesh)))
        self._seen: set[Shape] = set()

    def rows(self, samples: int) -> slice:
        """Which of so many samples this rank has at the end: all ranks share them."""
        return self.head.block(self.mesh, (samples,))[0]

    def check(self, shape: Shape) -> None:
        """Raise ValueError for a batch of `shape` that does not fit the layers. Warns of ranks for
        which there is no sample."""
        self.outputs(shape)
        for layer in self.modules():
            if isinstance(layer, DistributedConv2d) and not layer.linear:
                warn_of_idle(self.mesh, layer.name, "samples", shape[0], layer.takes.N)
                return

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        shape = tuple(batch.shape)
        if shape[1:] not in self._seen:
            self.check(shape)
            self._seen.add(shape[1:])
        held = next((layer.takes for layer in self), self.head)
        x = batch[held.block(self.mesh, shape)].contiguous()  # no message: the batch is here
        y, held = self.passed(x, shape, held)
        return redistribute(y, self.mesh, held, self.head, self.outputs(shape), "outputs")

    @property
    def tensors(self) -> Iterator[tuple[str, torch.Tensor, HeldBlock]]:
        """This rank's blocks of the plain model's parameters and buffers, by its names."""
        for layer in self.modules():
            if isinstance(layer, CutLayer):
                for key, held in layer.held.items():
                    yield f"{layer.name}.{key}".strip("."), getattr(layer, key), held

    def whole_state(self) -> dict[str, torch.Tensor]:
        """On rank 0 the plain model's state, assembled one tensor at a time; empty on the others.
        All ranks call it."""
        found, comm = {}, self.mesh.comm
        for name, tensor, held in self.tensors:
            whole = torch.zeros(held.shape, dtype=tensor.dtype, device=tensor.device)
            if held.first:
                whole[held.block] = tensor.detach()
            comm.reduce(whole, 0)  # each value is one rank's, the others' are zero
            if comm.rank == 0:
                found[name] = whole.cpu()
        return found

    def gradient_norm(self) -> float:
        """The joint norm of all gradients over all ranks, in which values that several have count
        once. All ranks call it."""
        parts = [
            squares([tensor.grad]) / held.copies
            for _, tensor, held in self.tensors
            if isinstance(tensor, nn.Parameter) and tensor.grad is not None
        ]
        total = torch.tensor(sum(parts), dtype=torch.float64)
        self.mesh.comm.all_reduce(total)
        return total.sqrt().item()


def cut(
    comm: Comm,
    model: nn.Module,
    shape: Sequence[int] | None,
    mesh: Mesh,
    distributions: Distributions = None,
) -> DistributedNet:
    """`model` cut over the ranks of `mesh`, those of `comm`. All ranks call it with the same
    `model`, an nn.Sequential of convolutions, pools, batch norms, activations, models.Residual,
    nn.Flatten and nn.Linear, which is left empty. `shape` is that of a batch, which is checked now;
    with None, that of the first is.

    `distributions` is that of the first convolution, or name -> that of the layer ("0", or
    "3.body.0"). A convolution or linear layer that it does not name is cut as the one before, with
    the axes of C and F exchanged, so that it takes what that one leaves; other layers take their
    input as it comes. From Flatten on, and by default, samples are cut over all axes.

    Raises ValueError for a layer that cannot be cut or does not fit, for a name of no layer, for an
    axis that the mesh lacks, and on every rank where two hold different models. Warns of ranks for
    which a layer has nothing."""
    if mesh.comm.members != comm.members:
        raise ValueError(f"{mesh} has other ranks than {comm}: make it by comm.mesh(...).")
    check_same_model(comm, model)
    layers = NetCutter(mesh, model, distributions).layers_of("", model)
    net = DistributedNet(mesh, layers)
    if shape is not None:
        net.check(tuple(shape))
    return net


class NetCutter:
    """Cuts a model layer by layer. `held`: how the last layer leaves its output; `next`: how the
    next one with a weight is cut."""

    def __init__(self, mesh: Mesh, model: nn.Module, distributions: Distributions):
        self.mesh = mesh
        self.head = Distribution(N=tuple(vars(mesh)))
        first = distributions if isinstance(distributions, Distribution) else self.head
        self.named = {} if isinstance(distributions, Distribution) else dict(distributions or {})
        for name in self.named:
            if name not in dict(model.named_modules()):
                raise ValueError(
                    f"distributions names the layer {name!r}, which the model lacks: it has "
                    f"{', '.join(name for name, _ in model.named_modules() if name)}."
                )
        self.images = any(type(each) in OF_IMAGES for each in model.modules())
        self.next = first if self.images else self.head
        self.held: Distribution | None = None

    def layers_of(self, prefix: str, module: nn.Module) -> dict[str, CutLayer]:
        if type(module) is not nn.Sequential:
            return {"0": self.layer(prefix.strip("."), module)}
        return {name: self.layer(prefix + name, part) for name, part in module.named_children()}

    def layer(self, name: str, module: nn.Module) -> CutLayer:
        made = self._made(name, module)
        self.held = made.gives
        for p in module.parameters():
            p.data = p.data.new_empty(0)  # this rank has its part
        return made

    def _made(self, name: str, module: nn.Module) -> CutLayer:
        kind, given = type(module), self.named.get(name)
        if given and given.F and kind not in (nn.Conv2d, nn.Linear):
            raise ValueError(
                f"layer {name}, a {kind.__name__}, has no filters, which {given} cuts: cut C."
            )
        held = given or self.held or self.next.x
        if kind is nn.Linear and self.images:
            self.next, self.images = self.head, False
        if kind in (nn.Conv2d, nn.Linear):
            d = given or self.next
            self.next = replace(d, C=d.F, F=d.C)
            return DistributedConv2d(self.mesh, cast(Any, module), d, None, name)
        if kind is nn.BatchNorm2d:
            return CutNorm(self.mesh, cast(nn.BatchNorm2d, module), held, name)
        if kind in POOLS:
            return CutPool(self.mesh, module, held, name)
        if kind is nn.Flatten:
            self.images, self.next = False, given or self.head
            check_flatten(name, cast(nn.Flatten, module), self.next)
            return LocalLayer(self.mesh, module, self.next, name)
        if isinstance(module, Residual):
            return self._sum(name, module, held)
        if isinstance(module, ELEMENTWISE):
            return LocalLayer(self.mesh, module, held, name)
        raise ValueError(
            f"layer {name}, a {kind.__name__}, cannot be cut: use an nn.Sequential of "
            f"{', '.join(each.__name__ for each in (*OF_IMAGES, nn.Flatten, nn.Linear))}, "
            f"models.Residual, {', '.join(each.__name__ for each in ELEMENTWISE)}."
        )

    def _sum(self, name: str, block: Residual, held: Distribution) -> ResidualSum:
        start, self.held = self.next, held
        body = Chain(self.mesh, self.layers_of(f"{name}.body.", block.body))
        shortcut, after = None, self.next
        if block.shortcut is not None:
            self.next, self.held = start, held
            shortcut = Chain(self.mesh, self.layers_of(f"{name}.shortcut.", block.shortcut))
        self.next = after
        return ResidualSum(self.mesh, body, shortcut, held, name)

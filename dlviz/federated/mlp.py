"""Several MLPs of one shape together, gradients by hand: a layer of all of them is one batched
matrix product.

    forward    x ← x Wᵀ + b,  x ← max(x, 0)           x (models, examples, features)
    loss       -log softmax(x)[label], the mean over the examples of each model
    backward   δ = (softmax(x) - onehot(label)) / examples
               dW = δᵀ x,  db = Σ δ,  δ ← δ W,  δ ← δ [x > 0]

Autograd gives the same in more than twice the time: these matrices are so small that its
bookkeeping costs more than the operations.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from dlviz.federated.weights import Layout

Tensor = torch.Tensor
# Weights by name (models, ...), inputs and labels (models, examples, ...) -> the losses (models,),
# and a function that gives the gradients of each model's own loss, in the order of the weights.
Losses = Callable[
    [dict[str, Tensor], Tensor, Tensor], tuple[Tensor, Callable[[], list[Tensor | None]]]
]


def mlp_losses(layout: Layout) -> Losses | None:
    """The cross entropies of models like this one, if it is linear layers with ReLU between them,
    and perhaps Flatten first; None otherwise."""
    layers = dict(layout.model.named_children())
    if type(layout.model) is not nn.Sequential or not all(
        _known(name, layer, layout) for name, layer in layers.items()
    ):
        return None
    linear = {name for name, layer in layers.items() if type(layer) is nn.Linear}
    names = [name for name, layer in layers.items() if type(layer) is not nn.Flatten]

    def losses(weights: dict[str, Tensor], inputs: Tensor, labels: Tensor):
        x = inputs.flatten(2)  # (models, examples, features)
        entered: list[Tensor] = []  # a linear layer's input; a ReLU's output
        for name in names:
            if name in linear:
                entered.append(x)
                x = torch.bmm(x, weights[f"{name}.weight"].mT)
                x += weights[f"{name}.bias"].unsqueeze(1)  # baddbmm takes longer
            else:
                x = x.relu_()
                entered.append(x)
        log_p, at = x.log_softmax(2), labels.unsqueeze(2)

        def gradients() -> list[Tensor | None]:
            found = dict.fromkeys(weights)
            delta = log_p.exp().scatter_(2, at, -1.0, reduce="add").div_(at.shape[1])
            for name, x in zip(reversed(names), reversed(entered), strict=True):
                if name in linear:
                    found[f"{name}.weight"] = torch.bmm(delta.mT, x)
                    found[f"{name}.bias"] = delta.sum(1)
                    if name != names[0]:  # nothing asks for the gradient of the data
                        delta = torch.bmm(delta, weights[f"{name}.weight"])
                else:
                    delta = torch.ops.aten.threshold_backward(delta, x, 0)  # 0 where x is
            return list(found.values())

        return log_p.gather(2, at).squeeze(2).mean(1).neg_(), gradients

    return losses


def _known(name: str, layer: nn.Module, layout: Layout) -> bool:
    if type(layer) is nn.Linear:
        return {f"{name}.weight", f"{name}.bias"} <= layout.tensors.keys()
    if type(layer) is nn.Flatten:
        return name == "0" and (layer.start_dim, layer.end_dim) == (1, -1)
    return type(layer) is nn.ReLU

"""The dishonest server: a client's images, read out of its update.

The server has the weights w it sent and what came back, and so the update w_k - w. It has no image,
no label and no gradient, only the arguments below.

By a ratio. A unit of a first linear layer computes W_i x + b_i, and one example x with gradient g_i
behind that unit moves

    dW_i = -rate * g_i * x        db_i = -rate * g_i        so   dW_i / db_i = x,  pixel by pixel.

In a batch, a unit sums over the examples that switch it on (ReLU): the ratio is an example where it
was the only one, and a mixture otherwise. A rate, a weight or a clipped norm cancels out of the
ratio; so do epochs, as long as the same example stays the only one. Noise on each entry does not.

By optimisation, where there is no such layer: search for images on which training moves the weights
as the client moved them, over all epochs that the server asked for. It may end in a poor minimum;
the distance left over shows that, so that another start can be tried.

Units: pixels as the client trained on them, 0 to 1 unless stated.
Source: Phong et al., "Privacy-Preserving Deep Learning via Additively Homomorphic Encryption", IEEE
TIFS 13(5), 2018, section 3 (ratio); Zhao et al., "iDLG", 2020, section 3 (label); Zhu et al.,
"Deep Leakage from Gradients", NeurIPS 2019, and Geiping et al., "Inverting Gradients", NeurIPS
2020, section 4 (optimisation: cosine, signed Adam, total variation, many epochs).

An image that these do not find is not safe: a server may send weights designed to reveal it (Fowl
et al., "Robbing the Fed", ICLR 2022).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.func import functional_call

from dlviz.counts import check_counts

Tensor = torch.Tensor


def ratio(
    weight_update: Tensor,
    bias_update: Tensor,
    *,
    low: float = 0.0,
    high: float = 1.0,
    outside: float = 0.05,
    alike: float = 0.02,
) -> Tensor:
    """The images found, one a row, (found, inputs), from the update of a first linear layer,
    (units, inputs) and (units,). Those on which most units agree come first.

    A unit's row counts as an image where its pixels exceed `low` to `high` by at most `outside` on
    average; rows that differ by at most `alike` on average are one image. A mixture of images may
    pass: the server cannot know. Raises ValueError for shapes that do not fit.
    """
    if weight_update.dim() != 2 or bias_update.shape != weight_update.shape[:1]:
        raise ValueError(
            f"updates of shape {tuple(weight_update.shape)} and {tuple(bias_update.shape)} are not "
            "those of a linear layer with bias: give (units, inputs) and (units,)."
        )
    strongest = bias_update.abs().argsort(descending=True)  # least affected by rounding and noise
    rows = weight_update[strongest] / bias_update[strongest, None]  # NaN where no example did
    shown = rows.clamp(low, high)
    rows = shown[(rows - shown).abs().mean(1) <= outside]
    near = torch.cdist(rows, rows, p=1) <= alike * rows.shape[1]  # (rows, rows)
    first = near.tril(-1).sum(1) == 0  # no stronger unit has the same image
    agree = near.sum(1)[first].argsort(descending=True, stable=True)
    return rows[first][agree]


def found(model: nn.Module, update: Tensor, **options: float) -> Tensor:
    """The images (found, inputs) in a flat `update` (parameters,) of a model whose first layer is
    linear, by `ratio` with these options."""
    weights, biases, *_ = unflatten(model, update)
    return ratio(weights, biases, **options)


def recovered(model: nn.Module, update: Tensor, images: Tensor, within: float = 0.02) -> int:
    """How many of a client's `images` (n, ...) are among those found in its update: a pixel is less
    than `within` off on average."""
    own = images.flatten(1)  # (n, inputs)
    gaps = torch.cdist(found(model, update), own, p=1) / own.shape[1]  # (found, n)
    return int((gaps < within).any(0).sum())


def labels(bias_update: Tensor) -> Tensor:
    """The labels that an update of the output layer's bias (classes,) reveals: the outputs it
    raised, those it raised most first.

    The gradient there is softmax - onehot, negative only at the label: for one example the answer
    is its label, whatever the rate and the number of epochs. With several, a label may be missing.
    """
    order = bias_update.argsort(descending=True)
    return order[bias_update[order] > 0]


def unflatten(model: nn.Module, update: Tensor) -> list[Tensor]:
    """A flat update (parameters,) as tensors in the shapes of `model.parameters()`, in their order.

    Raises ValueError for another number of values.
    """
    parameters = list(model.parameters())
    sizes = [parameter.numel() for parameter in parameters]
    if update.shape != (sum(sizes),):
        raise ValueError(
            f"the update has shape {tuple(update.shape)} and the model {sum(sizes)} parameters: "
            "give one number for each, in a row."
        )
    pieces = update.split(sizes)
    return [piece.view_as(like) for piece, like in zip(pieces, parameters, strict=True)]


def match(
    model: nn.Module,
    update: Tensor,
    shape: tuple[int, ...],
    *,
    epochs: int = 1,
    lr: float = 0.1,
    steps: int = 300,
    starts: int = 3,
    variation: float = 0.0,
    seed: int = 0,
) -> Tensor:
    """Images of `shape`, (n, channels, height, width), on which training would move `model` as the
    client's `update` does.

    model: holds the weights sent; its last parameter is the output layer's bias. update:
    (parameters,), received - sent, in the order of `model.parameters()`. The server itself asked
    for `epochs` steps of SGD at rate `lr` on the cross-entropy of the whole local batch, and n came
    as the client's weight. With one epoch `lr` does not matter.
    Pixels are assumed to be 0 to 1, as in `datasets.digits`.
    Starting from noise, Adam moves the images against the signs of the slope of

        1 - cosine(their update, update) + variation * mean difference of neighbouring pixels

    and, as probabilities, their labels, which start as those that the update reveals. Of several
    `starts` the one that ends lowest is taken. `variation` is for photographs: handwriting in 8 x 8
    pixels is not smooth. Raises ValueError for an update that does not fit the model, or raises no
    output's bias.

    Cost: `starts` x `steps` times `epochs` forwards, backwards, and backwards of backwards.
    """
    check_counts(epochs=epochs, steps=steps, starts=starts)
    if not len(labels(unflatten(model, update)[-1])):
        raise ValueError(
            "the update raises no output's bias, so that no label can be read: give received - "
            "sent of a network whose last parameter is its output layer's bias."
        )
    generator, tried = torch.Generator().manual_seed(seed), []
    for _ in range(starts):
        images = torch.rand(shape, generator=generator).to(update)
        distance = _search(model, update.detach(), images, epochs, lr, steps, variation)
        tried.append((distance, images))
    return min(tried, key=lambda pair: pair[0])[1]


def _search(
    model: nn.Module,
    update: Tensor,
    images: Tensor,
    epochs: int,
    lr: float,
    steps: int,
    variation: float,
) -> float:
    """Move `images`, in place, until their update points as `update` does. Returns the distance
    left over."""
    bias = unflatten(model, update)[-1]  # (classes,)
    guesses = labels(bias).repeat(len(images))[: len(images)]
    beliefs = 10 * nn.functional.one_hot(guesses, len(bias)).to(images)  # (n, classes), logits
    optimizer = torch.optim.Adam([images, beliefs], lr=0.1)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    total = torch.tensor(torch.inf)
    for _ in range(steps):
        x, y = images.clone().requires_grad_(), beliefs.clone().requires_grad_()
        ours = _trained(model, x, y.softmax(1), epochs, lr)
        rough = x.diff(dim=-2).abs().mean() + x.diff(dim=-1).abs().mean()
        total = 1 - nn.functional.cosine_similarity(ours, update, dim=0) + variation * rough
        images.grad, beliefs.grad = torch.autograd.grad(total, [x, y])
        images.grad.sign_()
        optimizer.step()
        slower.step()
        images.clamp_(0, 1)
    return total.item()


def _trained(model: nn.Module, images: Tensor, labels: Tensor, epochs: int, lr: float) -> Tensor:
    """What a client with these examples would send, (parameters,), differentiable."""
    sent = {name: weight.detach() for name, weight in model.named_parameters()}
    weights = {name: weight.clone().requires_grad_() for name, weight in sent.items()}
    for _ in range(epochs):
        loss = nn.functional.cross_entropy(functional_call(model, weights, (images,)), labels)
        slopes = torch.autograd.grad(loss, [*weights.values()], create_graph=True)
        moved = zip(weights.items(), slopes, strict=True)
        weights = {name: weight - lr * slope for (name, weight), slope in moved}
    return torch.cat([(weights[name] - sent[name]).flatten() for name in sent])

"""Who has which examples: one dataset, dealt to clients.

    identical   a b c a b c | a b c a b c | a b c a b c     every client has a bit of everything
    by_label    a a a b b b | a a a c c c | b b b c c c     a fixed number of labels a client
    dirichlet   a a a a b c | b b b b b   | a c c c c c     the smaller alpha, the fewer labels
    unequal     a b c a b c a b c a b c   | a b c a | b c   some have much more than others

Each of these returns a list: for client k the indices of its examples, (n_k,) of int64. Every
example goes to exactly one client.

Source: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS 2017, section 3 (identical, by_label); Hsu, Qi and Brown, "Measuring the Effects of
Non-Identical Data Distribution for Federated Visual Classification", 2019 (dirichlet).
"""

from __future__ import annotations

import warnings

import torch

from dlviz.counts import check_counts
from dlviz.federated.sizes import dirichlet_sizes

Tensor = torch.Tensor


def dealt(images: Tensor, labels: Tensor, parts: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """What `train` takes as `clients`: the images and labels of each client's part."""
    return [(images[part], labels[part]) for part in parts]


def identical(labels: Tensor, clients: int, seed: int = 0) -> list[Tensor]:
    """Shuffled and dealt out evenly: sizes differ by one at most."""
    check(labels, clients)
    return list(torch.randperm(len(labels), generator=_generator(seed)).tensor_split(clients))


def unequal(labels: Tensor, clients: int, exponent: float = 1.0, seed: int = 0) -> list[Tensor]:
    """Shuffled; client k has a share proportional to 1 / (k + 1)^exponent, at least one."""
    check(labels, clients)
    shares = torch.arange(1, clients + 1, dtype=torch.float64) ** -exponent
    sizes = 1 + _apportion(shares, len(labels) - clients)  # one each, then the rest by share
    return list(torch.randperm(len(labels), generator=_generator(seed)).split(sizes.tolist()))


def by_label(labels: Tensor, clients: int, per_client: int = 2, seed: int = 0) -> list[Tensor]:
    """Each client has `per_client` shards, each of another label: a label is cut into shards in
    proportion to its examples.

    Where clients * per_client shards are fewer than the labels, the shards are cut from all
    examples in the order of their labels, and a shard holds more than one label.
    Raises ValueError where a client asks for more labels than there are.
    """
    check(labels, clients)
    names, counts = labels.unique(return_counts=True)
    if not (isinstance(per_client, int) and 1 <= per_client <= len(names)):
        raise ValueError(
            f"per_client={per_client!r} labels a client are not possible with {len(names)} labels: "
            f"use 1 to {len(names)}."
        )
    check_counts(per_client=per_client)
    generator, shards = _generator(seed), clients * per_client
    order = torch.randperm(len(labels), generator=generator)
    if shards < len(names):
        # McMahan et al.: sort by label, cut. Stable, so a label's examples stay shuffled.
        pieces = order[labels[order].argsort(stable=True)].tensor_split(shards)
        dealt = torch.randperm(shards, generator=generator).view(clients, per_client)
        return [torch.cat([pieces[each] for each in mine]) for mine in dealt.tolist()]
    # At most one shard of a label per client: otherwise one of them would have it twice.
    left = 1 + _apportion(counts.double(), shards - len(names), most=clients - 1)
    pieces = {
        place: list(order[labels[order] == name].tensor_split(int(left[place])))
        for place, name in enumerate(names)
    }
    parts = []
    for _ in range(clients):
        # The labels with the most shards left come first, or the last client gets one label twice.
        chance = torch.rand(len(names), generator=generator)  # below 1: breaks ties alone
        chosen = (left + chance).argsort(descending=True)[:per_client].tolist()
        parts.append(torch.cat([pieces[place].pop() for place in chosen]))
        left[chosen] -= 1
    # Client 0 chose first: unshuffled it would always have the most frequent labels.
    return [parts[place] for place in torch.randperm(clients, generator=generator).tolist()]


def dirichlet(labels: Tensor, clients: int, alpha: float, seed: int = 0) -> list[Tensor]:
    """The examples of each label go to the clients in shares drawn from a Dirichlet distribution:
    alpha = 100 is nearly identical, 0.1 leaves a client one or two labels. A client may have none.

    Raises ValueError where `alpha` is not above 0.
    """
    check(labels, clients)
    names, counts = labels.unique(return_counts=True)
    sizes = dirichlet_sizes(counts.tolist(), clients, alpha, seed)
    generator = _generator(seed)
    parts: list[list[Tensor]] = [[] for _ in range(clients)]
    for name, own in zip(names, sizes.tolist(), strict=True):
        mine = (labels == name).nonzero().flatten()  # all of this label
        mine = mine[torch.randperm(len(mine), generator=generator)]
        for part, piece in zip(parts, mine.split(own), strict=True):
            part.append(piece)
    return [torch.cat(part) for part in parts]


def resample(images: Tensor, labels: Tensor, examples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """`examples` of (N, ..., height, width) images and (N,) labels, for more clients than the data
    suffice for: all of them, then copies drawn at random, each shifted by a pixel to one of eight
    sides, with black (0) moving in. Warns how many are copies: they are no new digits.
    """
    check_counts(examples=examples)
    copies = examples - len(labels)
    if copies <= 0:
        return images[:examples], labels[:examples]
    generator = _generator(seed)
    drawn = torch.randint(len(labels), (copies,), generator=generator)
    sides = [
        (down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if (down, right) != (0, 0)
    ]
    side = torch.randint(len(sides), (copies,), generator=generator)
    wide = torch.nn.functional.pad(images[drawn], (1, 1, 1, 1))  # black on all four sides
    height, width = images.shape[-2:]
    shifted = images[drawn].clone()
    for place, (down, right) in enumerate(sides):
        here = side == place
        # One down starts a row earlier in `wide`: at the black one.
        shifted[here] = wide[here][..., 1 - down :, 1 - right :][..., :height, :width]
    warnings.warn(
        f"{copies:,} of the {examples:,} examples are copies, shifted by a pixel, of the "
        f"{len(labels):,} originals.",
        stacklevel=2,
    )
    return torch.cat([images, shifted]), torch.cat([labels, labels[drawn]])


def table(labels: Tensor, parts: list[Tensor]) -> Tensor:
    """How many examples of each label every client has: (clients, labels) of int64, the labels in
    increasing order."""
    names = labels.unique()
    return torch.stack([(labels[part][:, None] == names).sum(0) for part in parts])


def check(labels: Tensor, clients: int) -> None:
    """Raise ValueError where there is no client, or not an example for each."""
    check_counts(clients=clients)
    if clients > len(labels):
        raise ValueError(
            f"{len(labels)} examples are too few for clients={clients}, one for each at least: "
            "make more of them with partition.resample, or use fewer clients."
        )


def _apportion(shares: Tensor, seats: int, most: int | None = None) -> Tensor:
    """`seats` dealt in proportion to `shares` (n,), the largest remainders rounded up; none has
    more than `most`."""
    most = seats if most is None else most
    quotas = shares / shares.sum() * seats
    dealt = quotas.floor().long().clamp(max=most)
    while left := seats - int(dealt.sum()):
        wants = (quotas - dealt).masked_fill(dealt == most, -torch.inf)  # the remainders
        dealt[wants.topk(min(left, int((dealt < most).sum()))).indices] += 1
    return dealt


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)

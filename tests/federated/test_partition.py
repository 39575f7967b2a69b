"""Who has which examples: every one once, and the labels that a partition claims."""

import numpy as np
import pytest
import torch

from dlviz.datasets import digits
from dlviz.federated import partition
from dlviz.federated.sizes import dirichlet_sizes

LABELS = digits("train")[1]
PARTITIONS = {
    "identical": partition.identical,
    "by_label": partition.by_label,
    "dirichlet": lambda *args, **how: partition.dirichlet(*args, alpha=0.3, **how),
    "unequal": partition.unequal,
}


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize("clients", [1, 2, 3, 7, 10, 60])
def test_every_example_goes_to_one_client_and_the_seed_says_to_which(name, clients):
    parts = PARTITIONS[name](LABELS, clients)
    assert len(parts) == clients and all(part.dtype == torch.int64 for part in parts)
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(len(LABELS)))
    again, other = (PARTITIONS[name](LABELS, clients, seed=seed) for seed in (0, 1))
    assert all(map(torch.equal, parts, again))
    assert not all(map(torch.equal, parts, other))


def test_identical_parts_are_as_large_as_each_other_and_have_every_label():
    table = partition.table(LABELS, partition.identical(LABELS, 10))
    sizes = table.sum(1)
    assert sizes.max() - sizes.min() <= 1 and (table > 0).all()


@pytest.mark.parametrize(("clients", "per_client"), [(5, 2), (10, 2), (8, 3), (13, 1), (50, 2)])
def test_by_label_a_client_has_so_many_labels(clients, per_client):
    for seed in range(5):
        parts = partition.by_label(LABELS, clients, per_client, seed)
        has = (partition.table(LABELS, parts) > 0).sum(1)
        assert has.tolist() == [per_client] * clients


def test_fewer_shards_than_labels_hold_more_than_one_each():
    table = partition.table(LABELS, partition.by_label(LABELS, 2, 2))
    assert (table > 0).sum(1).min() > 2 and table.sum() == len(LABELS)


def test_the_smaller_alpha_the_fewer_labels_a_client_has():
    def largest_share(alpha):
        table = partition.table(LABELS, partition.dirichlet(LABELS, 10, alpha)).double()
        table = table[table.sum(1) > 0]
        return (table.max(1).values / table.sum(1)).mean().item()

    assert largest_share(100) < 0.2 < 0.4 < largest_share(0.1)


def test_the_shares_of_a_label_are_dirichlets():
    """Their mean and variance over many labels: 1/K and (K-1) / (K² (K alpha + 1))."""
    clients, alpha, labels = 4, 0.5, torch.arange(400).repeat_interleave(50)
    table = partition.table(labels, partition.dirichlet(labels, clients, alpha)).double() / 50
    variance = (clients - 1) / (clients**2 * (clients * alpha + 1))
    assert table.mean().item() == pytest.approx(1 / clients)
    assert table.var().item() == pytest.approx(variance, rel=0.1)


def test_unequal_sizes_fall_as_the_exponent_says():
    sizes = [len(part) for part in partition.unequal(LABELS, 4, exponent=1.0)]
    shares = [1 / (k + 1) for k in range(4)]
    assert sizes == pytest.approx([len(LABELS) * s / sum(shares) for s in shares], abs=3)
    assert [len(part) for part in partition.unequal(LABELS[:6], 5, exponent=9.0)] == [2, 1, 1, 1, 1]


def test_copies_are_shifted_by_a_pixel_and_it_says_how_many_there_are():
    images, labels = (part[:20] for part in digits("train"))
    with pytest.warns(UserWarning, match="30 of the 50 examples are copies, shifted by a pixel"):
        more, of = partition.resample(images, labels, 50)
    assert torch.equal(more[:20], images) and torch.equal(of[:20], labels)
    wide = torch.nn.functional.pad(images, (1, 1, 1, 1))
    for image, label in zip(more[20:], of[20:], strict=True):
        shifts = [
            wide[:, :, 1 - down : 9 - down, 1 - right : 9 - right]
            for down in (-1, 0, 1)
            for right in (-1, 0, 1)
            if down or right
        ]
        came_from = torch.stack([(each == image).all((1, 2, 3)) for each in shifts]).any(0)
        assert label in labels[came_from]
    assert len(partition.resample(images, labels, 7)[1]) == 7


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: partition.identical(LABELS, 0), "clients=0 has to be a whole number, 1 or more"),
        (lambda: partition.identical(LABELS[:3], 4), "3 examples are too few for clients=4"),
        (lambda: partition.by_label(LABELS, 4, 11), "per_client=11 labels .* with 10 labels"),
        (lambda: partition.by_label(LABELS, 4, 0), "per_client=0 labels"),
        (lambda: partition.dirichlet(LABELS, 4, 0), "alpha=0 is not a Dirichlet concentration"),
        (lambda: partition.dirichlet(LABELS, 4, -1.0), "alpha=-1.0"),
        (lambda: partition.dirichlet(LABELS, 4, float("nan")), "alpha=nan"),
    ],
)
def test_a_partition_that_cannot_be_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_sizes_are_cut_at_the_nearest_example_of_dirichlets_shares():
    counts, clients = (140, 3, 0), 7
    sizes, drawn = dirichlet_sizes(counts, clients, 0.3, seed=2), np.random.default_rng(2)
    assert sizes.shape == (3, clients) and (sizes >= 0).all()
    assert sizes.sum(axis=1).tolist() == [*counts]
    for count, own in zip(counts, sizes, strict=True):
        cuts = drawn.dirichlet([0.3] * clients).cumsum() * count
        assert abs(own.cumsum() - cuts).max() <= 0.5 + 1e-9


def test_each_client_is_dealt_the_images_and_labels_of_its_part():
    images, labels = torch.arange(10.0).view(5, 2), torch.arange(5)
    first, second = partition.dealt(images, labels, [torch.tensor([3, 0]), torch.tensor([1])])
    assert first[0].tolist() == [[6, 7], [0, 1]] and first[1].tolist() == [3, 0]
    assert second[0].tolist() == [[2, 3]] and second[1].tolist() == [1]

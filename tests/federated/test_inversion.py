"""dlviz.federated.inversion: what a server reads out of updates of real digits."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch

from dlviz.datasets import digits
from dlviz.federated import inversion
from dlviz.federated.privacy import clip
from dlviz.models import MLP, ConvNet

WIDTHS = (64, 32, 10)
READ = 0.02  # mean error of a pixel below which a digit is read
TRIALS = 20


@pytest.fixture(scope="module")
def data():
    return digits("train")


def drawn(data, count, seed):
    """`count` of the digits, (count, 1, 8, 8), and their labels."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(data[1]), generator=generator)[:count]
    return data[0][chosen], data[1][chosen]


def update_of(model, images, labels, epochs=1, rate=0.1):
    """What a client sends, flat: the weights after `epochs` steps on all its examples less those it
    was sent. The model it was sent stays as it is, as does its `grad`."""
    trained = copy.deepcopy(model)
    optimizer = torch.optim.SGD(trained.parameters(), lr=rate)
    for _ in range(epochs):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(trained(images), labels).backward()
        optimizer.step()
    flat = torch.nn.utils.parameters_to_vector
    return (flat(trained.parameters()) - flat(model.parameters())).detach()


def ratio_of(model, update, **options):
    weight, bias = inversion.unflatten(model, update)[:2]
    return inversion.ratio(weight, bias, **options)


def errors(found, images):
    """Mean error of a pixel of each found image (found,) against each true one (count,)."""
    return (found.flatten(1)[:, None] - images.flatten(1)).abs().mean(2)


def digits_read(data, count, *, trials=TRIALS, epochs=1):
    """Digits read and images found, on average, in updates of `count` digits, untrained MLPs."""
    read = found = 0
    for seed in range(trials):
        images, labels = drawn(data, count, 1000 * count + seed)
        model = MLP(WIDTHS, seed=seed)
        rows = ratio_of(model, update_of(model, images, labels, epochs))
        found += len(rows)
        read += int((errors(rows, images).amin(0) < READ).sum()) if len(rows) else 0
    return read / trials, found / trials


# --- by the ratio


def test_a_row_of_the_update_over_its_bias_is_the_example():
    image = torch.tensor([0.0, 0.25, 1.0])
    slopes = torch.tensor([0.5, 0.0, -2.0])  # the second unit was off
    found = inversion.ratio(slopes[:, None] * image, slopes)
    torch.testing.assert_close(found, image[None])


def test_rows_that_cannot_be_an_image_are_left_out_and_equal_ones_are_one():
    one, other = torch.tensor([0.0, 0.5, 1.0, 0.25]), torch.tensor([1.0, 1.0, 0.0, 0.0])
    beyond, nothing = torch.tensor([4.0, -3.0, 0.5, 0.5]), torch.tensor([0.5, 0.5, 0.5, torch.nan])
    rows = torch.stack([other, one, beyond, one + 0.01, nothing])
    bias = torch.tensor([9.0, -1.0, 5.0, 2.0, 1.0])
    found = inversion.ratio(rows * bias[:, None], bias)
    expected = torch.stack([(one + 0.01).clamp(max=1), other])  # two units say the first
    torch.testing.assert_close(found, expected)
    black_is_minus_one = inversion.ratio(bias[2:3, None] * beyond, bias[2:3], low=-3.0, high=4.0)
    torch.testing.assert_close(black_is_minus_one, beyond[None])
    assert inversion.ratio(torch.zeros(3, 4), torch.zeros(3)).shape == (0, 4)


def test_updates_that_are_not_of_a_linear_layer_are_refused():
    with pytest.raises(ValueError, match=r"\(3, 4\) and \(4,\) are not those of a linear layer"):
        inversion.ratio(torch.zeros(3, 4), torch.zeros(4))


def test_one_digit_is_read_with_its_label_whatever_rate_epochs_and_clipping(data):
    for seed, (epochs, rate) in enumerate([(1, 0.1), (5, 0.1), (20, 0.01), (1, 1.0)]):
        images, labels = drawn(data, 1, seed)
        model = MLP(WIDTHS, seed=seed)
        update = update_of(model, images, labels, epochs, rate)
        for sent in (update, clip(update, 1e-3)):
            assert errors(ratio_of(model, sent), images).tolist() == [[pytest.approx(0, abs=1e-3)]]
            assert (
                inversion.labels(inversion.unflatten(model, sent)[-1]).tolist() == labels.tolist()
            )


@pytest.mark.parametrize(
    ("count", "expected"), [(2, 1.9), (4, 2.4), (8, 2.6), (16, 2.3), (64, 1.1)]
)
def test_a_few_digits_are_read_out_of_a_batch_however_large(data, count, expected):
    read, found = digits_read(data, count)
    assert read == pytest.approx(expected, abs=0.3)
    assert read < found < 20  # mixtures that pass for an image are among them


def test_five_epochs_instead_of_one_change_little(data):
    for count, expected in ((2, 1.75), (8, 2.2), (32, 1.2)):
        read, _ = digits_read(data, count, epochs=5)
        assert read == pytest.approx(expected, abs=0.3)


def test_clipping_changes_nothing_for_a_batch_either(data):
    images, labels = drawn(data, 8, 3)
    model = MLP(WIDTHS, seed=3)
    update = update_of(model, images, labels)
    whole, clipped = ratio_of(model, update), ratio_of(model, clip(update, 1e-4))
    torch.testing.assert_close(clipped, whole, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("share", "strongest", "all_units"),
    [(0.001, 0.01, 0.04), (0.01, 0.07, 0.19), (0.1, 0.31, 0.42)],
)
def test_noise_on_each_entry_blurs_the_digit_and_ends_it(data, share, strongest, all_units):
    """share: of the update's norm. Mean errors of a pixel of the unit that moved most and of all
    that moved; an image of uniform noise is about 0.4 off."""
    seen = []
    for seed in range(TRIALS):
        images, labels = drawn(data, 1, seed)
        model = MLP(WIDTHS, seed=seed)
        update = update_of(model, images, labels)
        moved = inversion.unflatten(model, update)[1] != 0
        generator = torch.Generator().manual_seed(seed)
        noise = share * update.norm() * torch.randn(update.shape, generator=generator)
        weight, bias = (part[moved] for part in inversion.unflatten(model, update + noise)[:2])
        rows = (weight / bias[:, None]).clamp(0, 1)
        off = errors(rows, images)[:, 0]
        seen.append([off[bias.abs().argmax()].item(), off.mean().item()])
        found = inversion.ratio(weight, bias)
        assert len(found) == 0 if share == 0.1 else errors(found, images).min() < 0.2
    assert torch.tensor(seen).mean(0).tolist() == pytest.approx([strongest, all_units], abs=0.03)


# --- labels


def test_of_one_example_the_label_is_the_one_output_that_was_raised(data):
    for seed in range(TRIALS):
        images, labels = drawn(data, 1, seed)
        model = ConvNet(seed=seed)
        bias = inversion.unflatten(model, update_of(model, images, labels, 1 + seed % 5))[-1]
        assert inversion.labels(bias).tolist() == labels.tolist()


def test_labels_come_in_the_order_in_which_they_were_raised():
    assert inversion.labels(torch.tensor([-1.0, 0.5, 0.0, 2.0])).tolist() == [3, 1]


# --- by optimisation


def read_by_search(data, seed, count=1, trained=1, **options):
    """Errors of the digits nearest to the images found, (count,), and whether each of these is
    nearer to its digit than to any other of all there are."""
    images, labels = drawn(data, count, seed)
    model = ConvNet(seed=seed)
    update = clip(update_of(model, images, labels, trained), 0.01)
    found = inversion.match(model, update, tuple(images.shape), starts=1, **options)
    assert found.shape == images.shape and 0 <= found.min() <= found.max() <= 1
    assert all(parameter.grad is None for parameter in model.parameters())
    off = errors(found, images).amin(0)
    return off, torch.equal(off.sort().values, errors(found, data[0]).amin(1).sort().values)


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.sweep)])
def test_digits_are_read_out_of_a_convolutional_network(data, count):
    off, nearest = read_by_search(data, 1, count)
    assert off.max().item() < READ and nearest


@pytest.mark.sweep
def test_five_epochs_hide_a_digit_only_from_a_server_that_forgets_them(data):
    off, _ = read_by_search(data, 3, trained=5, epochs=1, steps=150)
    assert off.item() > 0.1
    off, nearest = read_by_search(data, 3, trained=5, epochs=5, steps=150)
    assert off.item() < READ and nearest


def test_of_several_starts_the_one_that_comes_nearest_is_taken(data):
    images, labels = drawn(data, 1, 1)
    model = ConvNet(seed=1)
    update = update_of(model, images, labels)

    def cosine(**options):
        found = inversion.match(model, update, (1, 1, 8, 8), steps=40, **options)
        return torch.cosine_similarity(update_of(model, found, labels), update, dim=0).item()

    assert cosine(starts=4) > cosine(starts=1) + 0.001


# --- what the server is given


def test_the_server_is_given_what_it_sent_and_what_it_received_and_nothing_else():
    """Neither a gradient nor a label nor an image nor a batch: weights sent, update received, sizes
    and settings."""
    given = {
        inversion.ratio: ["weight_update", "bias_update", "low", "high", "outside", "alike"],
        inversion.found: ["model", "update", "options"],
        inversion.labels: ["bias_update"],
        inversion.unflatten: ["model", "update"],
        inversion.match: ["model", "update", "shape", "epochs", "lr", "steps", "starts"]
        + ["variation", "seed"],
    }
    public = {
        each
        for name, each in vars(inversion).items()
        if inspect.isfunction(each)
        and each.__module__ == inversion.__name__
        and not name.startswith("_")
    } - {inversion.recovered}  # which compares what was found with the client's own images
    assert public == given.keys()
    for function, names in given.items():
        assert [*inspect.signature(function).parameters] == names


def test_an_update_that_raises_no_output_has_no_label_to_read():
    model = MLP(WIDTHS)
    with pytest.raises(ValueError, match="the update raises no output's bias"):
        inversion.match(model, torch.zeros(2410), (1, 1, 8, 8))


def test_an_update_of_another_size_is_refused():
    model = MLP(WIDTHS)
    with pytest.raises(ValueError, match=r"shape \(7,\) and the model 2410 parameters"):
        inversion.unflatten(model, torch.zeros(7))
    with pytest.raises(ValueError, match=r"shape \(7,\) and the model 2410 parameters"):
        inversion.match(model, torch.zeros(7), (1, 1, 8, 8))


def test_the_images_found_in_a_flat_update_and_how_many_of_them_are_a_clients_own(data):
    images, labels = data
    net = MLP((64, 32, 10))
    own = images[:4]
    loss = torch.nn.functional.cross_entropy(net(own), labels[:4])
    slopes = torch.autograd.grad(loss, [*net.parameters()])
    update = -0.1 * torch.cat([slope.flatten() for slope in slopes])
    rows = inversion.found(net, update)
    assert torch.equal(rows, inversion.ratio(*inversion.unflatten(net, update)[:2]))
    near = [bool(((rows - each.flatten()).abs().mean(1) < 0.02).any()) for each in own]
    assert 1 <= sum(near) == inversion.recovered(net, update, own)
    assert inversion.recovered(net, update, images[100:104]) == 0
    assert inversion.recovered(net, torch.zeros_like(update), own) == 0
    assert len(inversion.found(net, update, outside=float("inf"), alike=0)) >= len(rows)

"""dlviz.datasets: the digits are the digits, shards are a partition, batches a seeded order."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dlviz.datasets import batches, dealt_by_label, digits, joined, shard, store

REPOSITORY = Path(__file__).parents[2]
SPLIT = [6, 5, 5, 7, 9, 9, 8, 4, 6, 8, 6, 0, 6, 8, 3, 2, 2, 3, 1, 2]  # the first test labels


def test_all_1797_digits_are_there_as_uci_describes_them():
    images, labels = digits("all")
    assert images.shape == (1797, 1, 8, 8) and images.dtype == torch.float32
    assert labels.shape == (1797,) and labels.dtype == torch.int64
    assert images.min() == 0 and images.max() == 1
    assert torch.equal(images * 16, (images * 16).round())
    assert labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    row = torch.tensor([0, 0, 5, 13, 9, 1, 0, 0]) / 16
    assert labels[0] == 0 and torch.equal(images[0, 0, 0], row)


def test_training_and_test_images_are_all_images_once():
    train, test, everything = (digits(split) for split in ("train", "test", "all"))
    assert (len(train[1]), len(test[1])) == (1437, 360)

    def rows(*parts):
        flat = [torch.cat([i.flatten(1), n[:, None].float()], 1) for i, n in parts]
        return sorted(map(tuple, torch.cat(flat).tolist()))

    assert rows(train, test) == rows(everything)
    assert test[1].bincount(minlength=10).min() > 20, "every digit is tested"


def test_the_split_is_the_same_in_every_process():
    assert digits("test")[1][:20].tolist() == SPLIT
    torch.manual_seed(5)
    assert digits("test")[1][:20].tolist() == SPLIT


def test_images_come_in_the_dtype_asked_for():
    single, double = digits("test"), digits("test", torch.float64)
    assert double[0].dtype == torch.float64 and double[1].dtype == torch.int64
    assert torch.equal(double[0], single[0].double())


def test_images_are_enlarged_between_their_pixels():
    small, labels = digits("test", torch.float64)
    large, same = digits("test", torch.float64, side=32)
    assert large.shape == (360, 1, 32, 32) and torch.equal(labels, same)
    assert large.min() >= 0 and large.max() <= 1
    blocks = large.unflatten(3, (8, 4)).unflatten(2, (8, 4)).mean((3, 5))  # 4 x 4 pixels each
    inner, smooth = blocks[..., 1:-1, 1:-1], small.clone()
    for dim in (2, 3):  # on a line the mean of a pixel's block: 3/4 its own, 1/8 each neighbour's
        before, after = smooth.roll(1, dim), smooth.roll(-1, dim)
        smooth = smooth * 3 / 4 + (before + after) / 8
    torch.testing.assert_close(inner, smooth[..., 1:-1, 1:-1])
    assert torch.equal(large[..., 0, 0], small[..., 0, 0]), "a corner keeps its value"


def test_an_unknown_split_and_no_pixels_are_refused():
    with pytest.raises(ValueError, match="^side=0 has to be a whole number, 1 or more"):
        digits("test", side=0)
    with pytest.raises(ValueError, match="^split='valid' is not a part of the digits"):
        digits("valid")


@pytest.mark.parametrize("damage", [b"", b"not a gzip file"])
def test_a_damaged_file_is_named_in_one_sentence(tmp_path, damage):
    shutil.copytree(store.ROOT / "digits", tmp_path / "digits")
    file = tmp_path / "digits" / "digits.csv.gz"
    file.write_bytes(damage or file.read_bytes()[:-1])
    message = f"^{re.escape(str(file))} has the SHA-256 .*, not the 09f66e6debde.* was damaged"
    with pytest.raises(ValueError, match=message):
        store.read("digits/digits.csv.gz", tmp_path)


def test_digits_checks_the_file_it_reads(monkeypatch):
    monkeypatch.setattr(hashlib, "sha256", lambda content: hashlib.sha1(content))
    with pytest.raises(ValueError, match="was damaged"):
        digits()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"digits\.csv\.gz is missing: get it back"):
        store.read("digits/digits.csv.gz", tmp_path)


@pytest.mark.slow
@pytest.mark.sweep
def test_an_installed_wheel_brings_the_data(tmp_path):
    """A wheel built from the tracked files, unpacked elsewhere, reads its own copy."""
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    source = tmp_path / "source"
    for name in ("dlviz", "data"):
        shutil.copytree(REPOSITORY / name, source / name)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "LICENSE-labs"):
        shutil.copy(REPOSITORY / name, source)
    subprocess.run([*build, "-w", tmp_path, source], check=True)
    (wheel,) = tmp_path.glob("dlviz-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = archive.namelist()
        for folder in ("digits", "sentences"):
            assert f"dlviz/data/{folder}/README.md" in held, "the licence goes with the data"
        assert "dlviz/grading/questions/00.toml" in held
        archive.extractall(tmp_path / "site")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from dlviz.datasets import digits, sentences, store; "
        "print(len(digits('all')[1]), len(sentences('all')[1]), store.ROOT)"
    )
    run = [sys.executable, "-c", code, tmp_path / "site"]
    out = subprocess.run(run, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert out.split() == ["1797", "10000", str(tmp_path / "site" / "dlviz" / "data")]


@given(length=st.integers(0, 50), size=st.integers(1, 13))
def test_shards_are_the_whole_in_order_and_differ_by_at_most_one(length, size):
    rows = torch.arange(length)
    parts = [shard(rows, rank, size) for rank in range(size)]
    assert torch.equal(torch.cat(parts), rows)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    starts = [rank * length // size for rank in range(size)]
    assert all(len(p) == 0 or p[0] == start for p, start in zip(parts, starts, strict=True))


def test_a_shard_is_a_view():
    rows = torch.zeros(5, 2)
    shard(rows, 1, 2).fill_(1)
    assert rows.sum(1).tolist() == [0, 0, 2, 2, 2]


@pytest.mark.parametrize("rank", [-1, 3])
def test_a_shard_of_no_rank_is_refused(rank):
    with pytest.raises(ValueError, match=f"^rank={rank} has no shard among size=3"):
        shard(torch.zeros(6), rank, 3)


def test_each_pass_takes_every_row_once_in_another_order():
    rows = torch.arange(10)
    found = list(batches(rows, rows + 100, batch=4, seed=1, steps=6))
    assert [len(x) for x, _ in found] == [4, 4, 2, 4, 4, 2]
    assert all(torch.equal(x + 100, y) for x, y in found)
    first, second = (torch.cat([x for x, _ in found[i : i + 3]]) for i in (0, 3))
    assert torch.equal(first.sort().values, rows) and torch.equal(second.sort().values, rows)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_batches_takes_the_steps_asked_for(steps):
    rows = torch.arange(6)
    assert len(list(batches(rows, rows, batch=4, steps=steps))) == steps


def test_batches_is_one_pass_by_default():
    rows = torch.arange(9)
    assert [len(x) for x, _ in batches(rows, rows, batch=4)] == [4, 4, 1]


def test_batches_follow_from_the_seed_alone():
    rows = torch.arange(40)

    def order(seed):
        return torch.cat([x for x, _ in batches(rows, rows, batch=7, seed=seed)])

    first = order(2)
    torch.manual_seed(8)
    assert torch.equal(first, order(2))
    assert not torch.equal(first, order(3))


@pytest.mark.parametrize(
    ("images", "labels", "options", "message"),
    [
        (3, 3, {"batch": 0}, "^batch=0 has to be a whole number, 1 or more"),
        (3, 3, {"batch": 1, "steps": -1}, "^steps=-1 has to be a whole number, 0 or more"),
        (3, 2, {"batch": 1}, "^3 images and 2 labels make no batches"),
        (0, 0, {"batch": 1, "steps": 1}, "^0 images and 0 labels make no batches"),
    ],
)
def test_batches_that_cannot_be_are_refused_at_the_call(images, labels, options, message):
    with pytest.raises(ValueError, match=message):
        batches(torch.zeros(images), torch.zeros(labels), **options)


def test_workers_get_their_own_labels_in_turn_and_no_row_twice_in_a_pass():
    images, labels = digits("train")
    rows = torch.arange(len(labels))
    own = [range(8), range(8), (8, 9)]
    dealt = dealt_by_label(rows, labels, own, batch=16, steps=15)
    assert len(dealt) == 45 and all(len(each) == 16 for each, _ in dealt)
    for number, (_, found) in enumerate(dealt):
        assert {*found.tolist()} <= {*own[number % 3]}, number
    seen = torch.cat([each for number, (each, _) in enumerate(dealt) if number % 3 < 2])
    assert len(seen.unique()) == len(seen) == 30 * 16
    whole = (labels < 8).nonzero()[:, 0]
    whole = whole[: len(whole) // 16 * 16]
    in_order = batches(rows[whole], labels[whole], 16, seed=0, steps=30)
    assert torch.equal(seen, torch.cat([each for each, _ in in_order]))
    assert not torch.equal(dealt_by_label(rows, labels, own, 16, 15, seed=1)[0][0], dealt[0][0])


def test_labels_without_a_batch_are_refused():
    images, labels = digits("train")
    with pytest.raises(ValueError, match=r"labels \(3,\) have 1 rows: a batch needs 16"):
        first = (labels == 3).nonzero()[:1, 0]
        dealt_by_label(images[first], labels[first], [[3]], batch=16, steps=1)


def test_joined_batches_are_the_rows_of_each_in_order_and_none_is_left_over():
    parts = [(torch.full((2, 3), i), torch.full((2,), i)) for i in range(4)]
    first, second = joined(parts, 2)
    assert first[1].tolist() == [0, 0, 1, 1] and second[0].shape == (4, 3)
    with pytest.raises(ValueError, match="4 batches cannot be joined 3 at a time"):
        joined(parts, 3)

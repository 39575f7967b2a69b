"""datasets.idx: files in MNIST's format, and errors of one sentence for invalid ones."""

from __future__ import annotations

import gzip
import re
import struct

import pytest
import torch

from dlviz.datasets import idx, store

PIXELS = bytes(range(0, 240, 10))  # four images of 2 x 3
IMAGES = struct.pack(">IIII", 0x803, 4, 2, 3) + PIXELS
PACKED = gzip.compress(IMAGES, mtime=0)
LABELS = struct.pack(">II", 0x801, 4) + bytes([7, 0, 255, 3])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_images_and_labels_are_read_plain_and_compressed(tmp_path, pack):
    (tmp_path / "images").write_bytes(pack(IMAGES))
    (tmp_path / "labels").write_bytes(pack(LABELS))
    images, labels = idx(tmp_path / "images", str(tmp_path / "labels"), torch.float64)
    assert images.shape == (4, 1, 2, 3) and images.dtype == torch.float64
    expected = torch.tensor(list(PIXELS), dtype=torch.float64) / 255
    assert torch.equal(images.flatten(), expected)
    assert labels.dtype == torch.int64 and labels.tolist() == [7, 0, 255, 3]


def test_a_name_is_that_of_a_file_in_data(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "ROOT", tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "images").write_bytes(IMAGES)
    (tmp_path / "mine" / "labels").write_bytes(LABELS)
    images, _ = idx("mine/images", "mine/labels")
    assert images.dtype == torch.float32 and images.max() == pytest.approx(230 / 255)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "{} is missing: put the file there"),
        (b"", "{} begins with nothing, not with the magic number 00000803 of images"),
        (LABELS, "{} begins with 00000801, not with the magic number 00000803 of images"),
        (b"PNG, not IDX", "{} begins with 504e472c, not with"),
        (IMAGES[:10], "{} has 10 bytes and not the "),
        (IMAGES[:-1], "{} has 39 bytes and not the 40 that its header states"),
        (IMAGES + b"!", "{} has 41 bytes and not the 40 that its header states"),
        (PACKED[:-9], "{} is truncated or damaged, gzip says"),
        (PACKED[:10] + b"\xff" * 20, "{} is truncated or damaged, gzip says"),
        (PACKED[:-8] + bytes(8), "{} is truncated or damaged, gzip says"),
        (IMAGES[:4] + b"\0\0\0\5" + IMAGES[8:] + PIXELS[:6], "{} has 5 images and "),
    ],
)
def test_an_invalid_file_is_refused_in_one_sentence(tmp_path, content, message):
    images, labels = tmp_path / "images", tmp_path / "labels"
    labels.write_bytes(LABELS)
    if content is not None:
        images.write_bytes(content)
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        idx(images, labels)
    shown = str(caught.value)
    assert re.match(re.escape(message.format(images)), shown)
    assert shown.endswith(".") and "\n" not in shown and ". " not in shown


def test_a_header_cut_short_does_not_pass_for_an_empty_file(tmp_path):
    (tmp_path / "labels").write_bytes(LABELS)
    for cut in (4, 8, 12, 15):
        (tmp_path / "images").write_bytes(IMAGES[:cut])
        with pytest.raises(ValueError, match=f"has {cut} bytes"):
            idx(tmp_path / "images", tmp_path / "labels")

"""1,797 real handwritten digits of 8 x 8 pixels: small enough to learn in seconds on one core.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
Repository, 1998, doi:10.24432/C50P49 (its test set); see data/digits/README.md.
"""

from __future__ import annotations

import gzip
import io

import numpy as np
import torch
from torch import nn

from dlviz.counts import check_counts
from dlviz.datasets import store

SIDE = 8  # pixels
TEST = 360  # images, a fifth of all


def digits(
    split: str = "train", dtype: torch.dtype = torch.float32, side: int = SIDE
) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (N, 1, side, side) of `dtype` in [0, 1] and labels (N,) of int64 in 0..9.

    split: "train" (N = 1,437) and "test" (N = 360) are disjoint and the same in every process;
    "all" is both (N = 1,797), in the file's order. side: 8 as scanned; images are enlarged to 32 x
    32, say, by bilinear interpolation.
    Raises ValueError for an unknown split and a damaged file.
    """
    if split not in ("train", "test", "all"):
        raise ValueError(f"split={split!r} is not a part of the digits: use train, test or all.")
    check_counts(side=side)
    text = gzip.decompress(store.read("digits/digits.csv.gz"))
    table = np.loadtxt(io.BytesIO(text), delimiter=",", dtype=np.int64)  # (1797, 64 + 1)
    images = torch.from_numpy(table[:, :64]).to(dtype).div_(16).view(-1, 1, SIDE, SIDE)
    if side != SIDE:
        images = nn.functional.interpolate(images, (side, side), mode="bilinear")
    labels = torch.from_numpy(table[:, 64].copy())
    if split == "all":
        return images, labels
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    chosen = order[:TEST] if split == "test" else order[TEST:]
    return images[chosen], labels[chosen]

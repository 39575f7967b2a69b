"""Images and labels in the IDX format of MNIST and others: files that you put in `data/`.

    0  0  8  3   N   rows   columns   pixels ...     images: bytes 0 to 255, row by row
    0  0  8  1   N   labels ...                      labels: a byte each

The first four bytes, the magic number, give the type of the values (8: bytes) and how many sizes
follow, each 4 bytes, big-endian. A file may be compressed by gzip.

Source: Y. LeCun, C. Cortes and C. J. C. Burges, "The MNIST database of handwritten digits", 1998.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch

from dlviz.datasets import store


def idx(
    images: str | Path, labels: str | Path, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (N, 1, rows, columns) of `dtype` in [0, 1] and labels (N,) of int64, from two files.

    A name such as "mnist/train-images-idx3-ubyte.gz" is relative to `data/`, unless absolute.
    Raises FileNotFoundError for a missing file, and ValueError for one that is damaged, truncated
    or of another format, and for unequal numbers of images and labels.
    """
    at = store.ROOT / images, store.ROOT / labels
    pixels, found = _read(at[0], 3), _read(at[1], 1)
    if len(pixels) != len(found):
        raise ValueError(
            f"{at[0]} has {len(pixels)} images and {at[1]} has {len(found)} labels: "
            "give two files that belong together."
        )
    return torch.from_numpy(pixels).to(dtype).div_(255).unsqueeze(1), torch.from_numpy(found).long()


def _read(path: Path, dims: int) -> np.ndarray:
    """The values of the file, uint8 of `dims` dims."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: put the file there, as it was downloaded.")
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(
                f"{path} is truncated or damaged, gzip says {str(error)!r}: download it again."
            ) from None
    magic, data = bytes([0, 0, 8, dims]), 4 + 4 * dims
    if content[:4] != magic:
        raise ValueError(
            f"{path} begins with {content[:4].hex() or 'nothing'}, not with the magic number "
            f"{magic.hex()} of {'images' if dims == 3 else 'labels'}: give a file of these."
        )
    sizes = tuple(np.frombuffer(content[4:data], ">u4", len(content[4:data]) // 4).tolist())
    stated = data + math.prod(sizes)
    if len(sizes) < dims or len(content) != stated:
        raise ValueError(
            f"{path} has {len(content)} bytes and not the {stated} that its header states: it is "
            "truncated or damaged, download it again."
        )
    return np.frombuffer(bytearray(content), np.uint8, offset=data).reshape(sizes)

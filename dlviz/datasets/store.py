"""The location of the data, and the check of its checksums.

In a checkout it lies in `data/` beside the package, in an installed wheel in `dlviz/data/`. Each
folder has a `SHA256SUMS` as written by sha256sum.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
ROOT = _PACKAGE / "data" if (_PACKAGE / "data").is_dir() else _PACKAGE.parent / "data"


def read(name: str, root: Path = ROOT) -> bytes:
    """The bytes of the file `name`, such as "digits/digits.csv.gz", after a check of its SHA-256.

    Raises FileNotFoundError for a missing file, and ValueError where the SHA-256 differs from that
    in the `SHA256SUMS` beside it.
    """
    path = root / name
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: get it back with `git checkout data`, or install dlviz again."
        )
    content = path.read_bytes()
    sums = (line.split() for line in (path.parent / "SHA256SUMS").read_text().splitlines())
    stated = {file: digest for digest, file in sums}[path.name]
    found = hashlib.sha256(content).hexdigest()
    if found != stated:
        raise ValueError(
            f"{path} has the SHA-256 {found[:12]}..., not the {stated[:12]}... that SHA256SUMS "
            "states: the file was damaged, get it back with `git checkout data`, or install dlviz "
            "again."
        )
    return content

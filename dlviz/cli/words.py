"""What the commands share: their messages and the files that they write."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dlviz.trace import Trace

ENDINGS = (".json.gz", ".json")


class Unusable(Exception):
    """An unusable argument or file; its message is one sentence for the user."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def complain(sentence: str) -> None:
    """Print what is wrong; under torchrun only the first process of a host does."""
    if not under_torchrun() or os.environ.get("LOCAL_RANK") == "0":
        print(f"dlviz: {sentence}", file=sys.stderr)


def size_of(nbytes: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes:.0f} bytes"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def counts(trace: Trace) -> str:
    hosts = len(trace.meta.get("hosts", {}))
    counted = f"{plural(len(trace.spans), 'span')}, {plural(len(trace.messages), 'message')}"
    return f"{counted} on {hosts} hosts" if hosts > 1 else counted


def check_target(path: Path, endings: tuple[str, ...]) -> None:
    """Raise Unusable for a file that cannot be written, before the work that it is for."""
    if not path.name.endswith(endings):
        raise Unusable(f"--out {path} has the wrong ending: use {' or '.join(endings)}.")
    if not path.parent.is_dir():
        raise Unusable(f"{path} cannot be written: there is no folder {path.parent}.")
    new = not os.path.exists(path)
    try:
        with open(path, "ab"):
            pass
    except OSError as error:
        raise Unusable(
            f"{path} cannot be written ({error.strerror}): choose another file with --out."
        ) from error
    if new:
        path.unlink()


def write(path: Path, save: Callable[[Path], Any]) -> None:
    try:
        save(path)
    except OSError as error:
        raise Unusable(f"{path} cannot be written: {error.strerror}.") from error

"""Predictions kept beside the notebook: one file a folder, `predictions.json`, for all its labs.

    {"format": "dlviz predictions 1",
     "predictions": {"messages of a ring all-reduce, 4 ranks":
                     {"value": 12, "unit": "messages", "made": "2026-03-02T10:22:35+01:00", ...}}}

To start over, delete the file and restart the kernel. The environment variable DLVIZ_PREDICTIONS
names another file; empty, it keeps none. A file that cannot be read or written costs nobody a
prediction: this kernel goes on without it, and says so once.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

FORMAT = "dlviz predictions 1"
_named = os.environ.get("DLVIZ_PREDICTIONS", "predictions.json")
file: Path | None = Path(_named).absolute() if _named else None
_said: set[str] = set()


def read() -> dict[str, dict[str, Any]]:
    """What the file holds for each question; nothing where there is no file that can be used."""
    try:
        return _read()
    except (OSError, ValueError, RecursionError) as error:
        _say("read", error, 4)
        return {}


def write(records: dict[str, dict[str, Any]]) -> None:
    """Put `records` into the file, beside what other notebooks of the folder keep there."""
    if file is None:
        return
    try:
        document = {"format": FORMAT, "predictions": {**_read(), **records}}
        replace(file, json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    except (OSError, ValueError, RecursionError) as error:
        _say("written", error, 5)


def replace(path: Path, text: str) -> None:
    """Write the file as a whole or not at all."""
    data = text.encode()
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(data)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _read() -> dict[str, dict[str, Any]]:
    if file is None or not file.exists():
        return {}
    document = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError("it is no file of predictions")
    records = document.get("predictions")
    if not isinstance(records, dict) or not all(isinstance(r, dict) for r in records.values()):
        raise ValueError("it holds no predictions")
    return records


def _say(done: str, error: Exception, level: int) -> None:
    """Warn once, at the line of the reader's cell, `level` calls up."""
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
        reason = "it is no JSON"
    else:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    if reason not in _said:
        _said.add(reason)
        warnings.warn(
            f"{file} cannot be {done} ({reason}): your predictions last until the kernel restarts.",
            RuntimeWarning,
            stacklevel=level,
        )

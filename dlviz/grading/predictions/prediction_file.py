"""Predictions and check results, stored beside the notebook: one file per folder, for all its labs.

    {"format": "dlviz predictions 1",
     "predictions": {"messages of a ring all-reduce, 4 ranks":
                     {"value": 12, "unit": "messages", "made": "2026-03-02T10:22:35+01:00", ...}},
     "checks": {"reduce_scatter: each rank ends with a whole chunk":
                {"points": 3, "most": 3, "when": "2026-03-02T11:02:10+01:00"}}}

The file is `predictions.json`. To start over, delete it and restart the kernel. The environment
variable DLVIZ_PREDICTIONS names another file; if it is empty, none is written. If the file
cannot be read or written, the kernel goes on without it and warns once.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

FORMAT = "dlviz predictions 1"
PREDICTIONS, CHECKS = "predictions", "checks"
Records = dict[str, dict[str, Any]]
_named = os.environ.get("DLVIZ_PREDICTIONS", "predictions.json")
file: Path | None = Path(_named).absolute() if _named else None
_said: set[str] = set()


def read(of: str = PREDICTIONS) -> Records:
    """The file's records, by question, or `of` the checks; none if it cannot be used."""
    try:
        return _read().get(of, {})
    except (OSError, ValueError, RecursionError) as error:
        _say("read", error, 4)
        return {}


def write(records: Records, of: str = PREDICTIONS) -> None:
    """Add `records` to the file, beside those of the folder's other notebooks."""
    if file is None:
        return
    try:
        held = _read()
        document = {"format": FORMAT, **held, of: {**held.get(of, {}), **records}}
        replace(file, json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    except (OSError, ValueError, RecursionError) as error:
        _say("written", error, 5)


def records_in(path: Path) -> dict[str, Records]:
    """The predictions and checks of a file. Raises OSError if it cannot be read, ValueError or
    RecursionError if it is not such a file."""
    document = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError("it is not a file of predictions")
    held = {of: document.get(of, {}) for of in (PREDICTIONS, CHECKS)}
    if PREDICTIONS not in document or not all(map(_are_records, held.values())):
        raise ValueError("it holds no predictions")
    return held


def replace(path: Path, text: str) -> None:
    """Write the file as a whole or not at all."""
    data = text.encode()
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(data)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _read() -> dict[str, Records]:
    return {PREDICTIONS: {}} if file is None or not file.exists() else records_in(file)


def _are_records(held: Any) -> bool:
    return isinstance(held, dict) and all(isinstance(each, dict) for each in held.values())


def _say(done: str, error: Exception, level: int) -> None:
    """Warn once, at the line of the reader's cell, `level` calls up."""
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
        reason = "it is not JSON"
    else:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    if reason not in _said:
        _said.add(reason)
        warnings.warn(
            f"{file} cannot be {done} ({reason}): your predictions last until the kernel restarts.",
            RuntimeWarning,
            stacklevel=level,
        )

"""The sentences on a drawing that the page and Python share, from the page's own table."""

from __future__ import annotations

import json
from pathlib import Path

_TABLE = Path(__file__).parents[1] / "widgets" / "static" / "board" / "sentences.js"
SENTENCES: dict[str, str] = json.loads(
    _TABLE.read_text(encoding="utf-8").partition("SENTENCES = ")[2].rstrip().rstrip(";")
)

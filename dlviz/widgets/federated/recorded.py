"""The recorded runs that the explorer of federated learning shows before its reader's first.

    python -m dlviz.widgets.federated.recorded      records them again, in a minute or two

They are what *Run it* would give, by the same code and the same seed.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from dlviz.widgets.federated.prediction import FIRST, Values

FILE = Path(__file__).parents[1] / "static" / "federated" / "recorded.json"
CONTROLS: list[Values] = [  # of each run, where they differ from FIRST
    {},
    {"epochs": 1, "batch": None},
    {"alpha": 100.0},
    {"alpha": 0.1},
    {"deadline": 2.0},
    {"secure": True},
    {"attackers": 0.2},
    {"attackers": 0.2, "method": "median"},
    {"clients": 100, "sigma": 1.0, "clip": 1.0},
]


@cache
def recorded() -> dict[str, Any]:
    """`made`, how the runs were made, and `runs`, the result of each with its controls."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def record() -> None:
    """Run all of them and write the file."""
    import torch

    import dlviz
    from dlviz.widgets.federated.run import SEED, run

    command = f"python -m {__spec__.name}"
    made = f"{command}, with dlviz {dlviz.__version__}, torch {torch.__version__} and seed {SEED}"
    runs = []
    for own in CONTROLS:
        controls = {**FIRST, **own}
        found, _ = run(controls, lambda *_: None)
        runs.append(json.dumps({"controls": controls, **found}, separators=(",", ":")))
    text = f'{{"made":{json.dumps(made)},"runs":[\n' + ",\n".join(runs) + "\n]}\n"
    FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    record()

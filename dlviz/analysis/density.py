"""How full the ranks' vectors were in a sparse all-reduce, step by step.

`collectives.sparse` records it: a span of kind phase for the whole, one for each step, one named
"turns dense" where a rank goes on with a dense vector, and a last one named "sum". Each has `nnz`,
the entries of `length` elements that the rank holds when the span begins.
"""

from __future__ import annotations

import numpy as np

from dlviz.trace import Table, Trace

TURNS = "turns dense"


def density(trace: Trace) -> Table:
    """A row for each time that a rank's vector is known: `rank`, `round` (how many steps it had
    taken), `density` (entries over elements), `most` (the density above which it turns dense), and
    what it is `held` as: "pairs", "dense" (all its elements count as entries), or "turns dense",
    when it becomes that.

    Raises ValueError for a Trace without a sparse all-reduce, or with several.
    """
    spans = trace.spans[trace.spans.kind == "phase"]
    rows = []
    for rank in trace.ranks:
        own = spans[spans["rank"] == rank]
        own = own[["nnz" in fields for fields in own.fields]]
        own = own[np.argsort(own.wall_start, kind="stable")]
        if np.count_nonzero(own.name == "sum") > 1:
            raise ValueError(
                "this Trace has more than one sparse all-reduce: give that of one, "
                "trace.only(step=0) say, if the run records its steps."
            )
        steps = [fields["round"] for fields in own.fields[own.name != "sum"]]
        for name, fields in zip(own.name, own.fields, strict=True):
            done = max(steps) + 1 if name == "sum" else fields["round"]
            done += name == TURNS  # at the end of its step
            share, most = (fields[each] / max(fields["length"], 1) for each in ("nnz", "most"))
            held = TURNS if name == TURNS else "dense" if fields["dense"] else "pairs"
            rows.append((rank, done, share, most, held))
    if not rows:
        raise ValueError(
            "this Trace has no sparse all-reduce: give that of a run that calls "
            "collectives.sparse.all_reduce."
        )
    columns = zip(*rows, strict=True)
    names = ("rank", "round", "density", "most", "held")
    return Table(dict(zip(names, columns, strict=True)))

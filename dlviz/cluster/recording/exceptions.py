"""A rank's exception in transit to the launching process, where it is the cause of the RankError.

It and those that led to it are pickled each by itself, as far as they can be. Notes go with them,
tracebacks do not: the RankError has these as text.
"""

from __future__ import annotations

import cloudpickle

from dlviz.cluster.recording import results

MOST = 50  # exceptions of a chain
LARGEST = 1 << 24  # bytes of one

Links = list[tuple[bytes, bool]]  # each exception, and whether the next one is its __cause__


def pack(error: BaseException) -> Links:
    """The chain of an exception up to the first that cannot be pickled."""
    links: Links = []
    onward: BaseException | None = error
    while onward is not None and len(links) < MOST:
        try:
            data = cloudpickle.dumps(onward)
        except Exception:
            break
        if len(data) > LARGEST:
            break
        direct = onward.__cause__ is not None or onward.__suppress_context__
        links.append((data, direct))
        onward = onward.__cause__ if direct else onward.__context__
    return links


def unpack(links: Links) -> BaseException | None:
    """The exception, with those that led to it down to the first that cannot be unpickled; None
    where it is that one itself."""
    later = None
    for data, direct in reversed(links):
        try:
            found = results.load(data)
            if direct:
                found.__cause__ = later
            else:
                found.__context__ = later
        except Exception:
            found = None
        later = found
    return later if isinstance(later, BaseException) else None

"""The binomial tree: in each step half of the ranks that still hold a sum pass it on.

Seven ranks and root 0; ranks are counted from the root on, modulo n:

    reduce      step 0: 1 -> 0   3 -> 2   5 -> 4        all added
                step 1: 2 -> 0   6 -> 4
                step 2: 4 -> 0
    broadcast   the same in reverse, last step first, all copied

`gather` and `scatter` use the same tree with the chunks of a subtree: rank 4 passes on chunks 4 to
6. Chunk i of n holds elements i*length//n to (i+1)*length//n - 1.

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
in MPICH", 2005.
"""

from __future__ import annotations

from dlviz.patterns.pattern import Transfer, check_rank, check_size


def all_reduce(ranks: int, length: int) -> list[Transfer]:
    """reduce to rank 0, then broadcast from there: 2 ceil(lg n) steps."""
    later = [t._replace(step=t.step + _height(ranks)) for t in broadcast(ranks, length)]
    return reduce(ranks, length) + later


def reduce(ranks: int, length: int, root: int = 0) -> list[Transfer]:
    """ceil(lg n) steps; each rank but the root sends its tensor once, which is added."""
    check_size(ranks, length)
    check_rank("root", root, ranks)
    return sorted(
        Transfer(step, (child + root) % ranks, (parent + root) % ranks, 0, length, "sum")
        for step, child, parent in _edges(ranks)
        if length
    )


def broadcast(ranks: int, length: int, root: int = 0) -> list[Transfer]:
    """ceil(lg n) steps; each rank but the root gets the tensor once."""
    last = _height(ranks) - 1
    return sorted(
        Transfer(last - t.step, t.dst, t.src, 0, length, "copy")
        for t in reduce(ranks, length, root)
    )


def gather(ranks: int, length: int) -> list[Transfer]:
    """Chunk r of every rank r to rank 0: ceil(lg n) steps, rank 0 gets (n-1)/n of the tensor."""
    check_size(ranks, length)
    found = []
    for step, child, parent in _edges(ranks):
        first = child * length // ranks
        end = min(child + (1 << step), ranks) * length // ranks
        if end > first:
            found.append(Transfer(step, child, parent, first, end - first, "copy"))
    return found


def scatter(ranks: int, length: int) -> list[Transfer]:
    """Chunk r of rank 0 to every rank r: gather in reverse."""
    last = _height(ranks) - 1
    return sorted(
        t._replace(step=last - t.step, src=t.dst, dst=t.src) for t in gather(ranks, length)
    )


def _edges(ranks: int) -> list[tuple[int, int, int]]:
    """(step, child, parent) of a reduce to rank 0: a rank sends in the step of its lowest bit."""
    return [
        (step, child, child - (1 << step))
        for step in range(_height(ranks))
        for child in range(1 << step, ranks, 2 << step)
    ]


def _height(ranks: int) -> int:
    return max(ranks - 1, 0).bit_length()

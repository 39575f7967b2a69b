"""Several numbers of ranks in one run: groups side by side and one after the other."""

from itertools import accumulate


def on_each_size(comm, layouts, work):
    """The result of `work(group)` in this rank's group of each layout, by the group's size. A
    layout is the sizes of groups that work at the same time; a rank in none of them waits."""
    found = {}
    for layout in layouts:
        ends = accumulate(layout)
        group = comm.split(next((n for n, end in enumerate(ends) if comm.rank < end), None))
        if group is not None:
            found[group.size] = work(group)
    return found


def of_size(run, size):
    """rank of the run: its result in the group of that size, in the group's order."""
    return {rank: each[size] for rank, each in enumerate(run.results) if size in each}

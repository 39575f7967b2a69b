"""Rows of 1F1B and of interleaved 1F1B as students write them, right and wrong."""

from __future__ import annotations

import os
import sys
import time
from itertools import count, cycle

from dlviz.schedules import make


def one_f_one_b(rank, ranks, microbatches):
    warmup = min(ranks - 1 - rank, microbatches)
    for i in range(warmup):
        yield f"F{i}"
    for i in range(microbatches - warmup):
        yield f"F{warmup + i}"
        yield f"B{i}"
    for i in range(microbatches - warmup, microbatches):
        yield f"B{i}"


def interleaved(rank, ranks, microbatches, chunks):
    stages = range(rank, ranks * chunks, ranks)
    yield from woven(
        grouped("F", stages, microbatches, ranks),
        grouped("B", stages[::-1], microbatches, ranks),
        2 * (ranks - 1 - rank) + (chunks - 1) * ranks,
    )


def grouped(kind, stages, microbatches, group):
    return [
        f"{stage}{kind}{i}"
        for first in range(0, microbatches, group)
        for stage in stages
        for i in range(first, first + group)
    ]


def woven(forwards, backwards, warmup):
    warmup = min(warmup, len(forwards))
    row = forwards[:warmup]
    for forward, backward in zip(forwards[warmup:], backwards):  # noqa: B905
        row += [forward, backward]
    return row + backwards[len(forwards) - warmup :]


def plain(microbatches, warmup):
    every = range(microbatches)
    return woven([f"F{i}" for i in every], [f"B{i}" for i in every], warmup)


# -- right ones ------------------------------------------------------------------------------------


def list_of_1f1b(rank, ranks, microbatches):
    return plain(microbatches, ranks - 1 - rank)


def by_counting(rank, ranks, microbatches):
    forwards = backwards = 0
    while backwards < microbatches:
        if forwards < microbatches and forwards - backwards < ranks - rank:
            yield f"F{forwards}"
            forwards += 1
        else:
            yield f"B{backwards}"
            backwards += 1


def with_stages(rank, ranks, microbatches):
    for action in one_f_one_b(rank, ranks, microbatches):
        yield f"{rank}{action}"


def interleaved_by_counting(rank, ranks, microbatches, chunks):
    def nth(kind, n):
        chunk = n // ranks % chunks
        chunk = chunk if kind == "F" else chunks - 1 - chunk
        return f"{chunk * ranks + rank}{kind}{n // (ranks * chunks) * ranks + n % ranks}"

    forwards = backwards = 0
    most = 2 * (ranks - 1 - rank) + (chunks - 1) * ranks + 1
    while backwards < microbatches * chunks:
        if forwards < microbatches * chunks and forwards - backwards < most:
            yield nth("F", forwards)
            forwards += 1
        else:
            yield nth("B", backwards)
            backwards += 1


# -- wrong ones: 1F1B ------------------------------------------------------------------------------


def gpipe(rank, ranks, microbatches):
    yield from (f"F{i}" for i in range(microbatches))
    yield from (f"B{i}" for i in range(microbatches))


def one_at_a_time(rank, ranks, microbatches):
    for i in range(microbatches):
        yield f"F{i}"
        yield f"B{i}"


def warmup_too_short(rank, ranks, microbatches):
    return plain(microbatches, max(ranks - 2 - rank, 0))


def warmup_too_long(rank, ranks, microbatches):
    return plain(microbatches, ranks - rank)


def without_cooldown(rank, ranks, microbatches):
    warmup = min(ranks - 1 - rank, microbatches)
    for i in range(warmup):
        yield f"F{i}"
    for i in range(microbatches - warmup):
        yield f"F{warmup + i}"
        yield f"B{i}"


def backward_first(rank, ranks, microbatches):
    warmup = min(ranks - 1 - rank, microbatches)
    for i in range(warmup):
        yield f"F{i}"
    for i in range(microbatches - warmup):
        yield f"B{i}"
        yield f"F{warmup + i}"
    for i in range(microbatches - warmup, microbatches):
        yield f"B{i}"


def last_in_first_out(rank, ranks, microbatches):
    stack = []
    for action in one_f_one_b(rank, ranks, microbatches):
        if action.startswith("F"):
            stack.append(action[1:])
            yield action
        else:
            yield f"B{stack.pop()}"


def same_on_all_ranks(rank, ranks, microbatches):
    return plain(microbatches, ranks - 1)


def ranks_the_wrong_way_round(rank, ranks, microbatches):
    return plain(microbatches, rank)


def in_rounds_of_ranks(rank, ranks, microbatches):
    microbatches = microbatches // ranks * ranks
    return plain(max(microbatches, ranks), ranks - 1 - rank)


def warmup_without_limit(rank, ranks, microbatches):
    warmup = ranks - 1 - rank
    for i in range(warmup):
        yield f"F{i}"
    for i in range(microbatches - warmup):
        yield f"F{warmup + i}"
        yield f"B{i}"
    for i in range(max(microbatches - warmup, 0), microbatches):
        yield f"B{i}"


def two_by_two(rank, ranks, microbatches):
    row = plain(microbatches, ranks - 1 - rank)
    for first in range(ranks - 1 - rank, len(row) - 3):
        if [action[0] for action in row[first : first + 4]] == [*"FBFB"]:
            row[first + 1], row[first + 2] = row[first + 2], row[first + 1]
    return row


def counts_from_one(rank, ranks, microbatches):
    for action in one_f_one_b(rank, ranks, microbatches):
        yield f"{action[0]}{int(action[1:]) + 1}"


def overlapping_loops(rank, ranks, microbatches):
    warmup = min(ranks - 1 - rank, microbatches)
    for i in range(warmup):
        yield f"F{i}"
    for i in range(microbatches - warmup):
        yield f"F{warmup + i}"
        yield f"B{i}"
    for i in range(warmup, microbatches):
        yield f"B{i}"


def forwards_alone(rank, ranks, microbatches):
    for i in range(microbatches):
        yield f"F{i}"


# -- wrong ones: interleaved -----------------------------------------------------------------------


def not_grouped(rank, ranks, microbatches, chunks):
    stages = range(rank, ranks * chunks, ranks)
    warmup = 2 * (ranks - 1 - rank) + (chunks - 1) * ranks
    return woven(
        grouped("F", stages, microbatches, microbatches),
        grouped("B", stages[::-1], microbatches, microbatches),
        warmup,
    )


def first_chunk_back_first(rank, ranks, microbatches, chunks):
    stages = range(rank, ranks * chunks, ranks)
    warmup = 2 * (ranks - 1 - rank) + (chunks - 1) * ranks
    forwards, backwards = (grouped(kind, stages, microbatches, ranks) for kind in "FB")
    return woven(forwards, backwards, warmup)


def stages_in_blocks(rank, ranks, microbatches, chunks):
    stages = range(rank * chunks, (rank + 1) * chunks)
    warmup = 2 * (ranks - 1 - rank) + (chunks - 1) * ranks
    forwards = grouped("F", stages, microbatches, ranks)
    return woven(forwards, grouped("B", stages[::-1], microbatches, ranks), warmup)


def warmup_of_1f1b(rank, ranks, microbatches, chunks):
    stages = range(rank, ranks * chunks, ranks)
    forwards = grouped("F", stages, microbatches, ranks)
    return woven(forwards, grouped("B", stages[::-1], microbatches, ranks), ranks - 1 - rank)


def warmup_for_one_way(rank, ranks, microbatches, chunks):
    stages = range(rank, ranks * chunks, ranks)
    forwards = grouped("F", stages, microbatches, ranks)
    warmup = ranks - 1 - rank + (chunks - 1) * ranks
    return woven(forwards, grouped("B", stages[::-1], microbatches, ranks), warmup)


def looped_bfs(rank, ranks, microbatches, chunks):
    stages = range(rank, ranks * chunks, ranks)
    yield from grouped("F", stages, microbatches, microbatches)
    yield from grouped("B", stages[::-1], microbatches, microbatches)


def only_the_first_chunk(rank, ranks, microbatches, chunks):
    return [f"{rank}{action}" for action in plain(microbatches, ranks - 1 - rank)]


def no_stage_named(rank, ranks, microbatches, chunks):
    return plain(microbatches, ranks - 1 - rank)


def stages_past_the_end(rank, ranks, microbatches, chunks):
    stages = range(rank + ranks, ranks * (chunks + 1), ranks)
    forwards = grouped("F", stages, microbatches, ranks)
    return woven(forwards, grouped("B", stages[::-1], microbatches, ranks), ranks)


# -- no rows at all --------------------------------------------------------------------------------


def never_stops(rank, ranks, microbatches):
    for i in count():
        yield f"F{i}"
        yield f"B{i}"


def turns_for_ever(rank, ranks, microbatches):
    done = 0
    while done < microbatches:
        action = f"F{done}"
    yield action


def lasting_list(rank, ranks, microbatches):
    row = []
    while len(row) >= 0:
        row.append("F0")
    return row


def not_written(rank, ranks, microbatches):
    raise NotImplementedError()


def nothing_returned(rank, ranks, microbatches):
    plain(microbatches, ranks - 1 - rank)


def nothing_yielded(rank, ranks, microbatches):
    yield from ()


def pairs(rank, ranks, microbatches):
    for i in range(microbatches):
        yield "F", i


def a_number(rank, ranks, microbatches):
    return microbatches


def breaks_on_the_last_rank(rank, ranks, microbatches):
    row = plain(microbatches, ranks - 1 - rank)
    return [row[ranks // (ranks - 1 - rank) * 0 + i] for i in range(len(row))]


def too_few_parameters(rank, ranks):
    yield "F0"


# -- from students ---------------------------------------------------------------------------------


def four_ranks_only(rank, ranks, microbatches):
    return plain(microbatches, [3, 2, 1, 0][rank])


def copied_from_the_picture(rank, ranks, microbatches):
    return plain(8, 3 - rank)


def one_long_text(rank, ranks, microbatches):
    return " ".join(plain(microbatches, ranks - 1 - rank))


def idle_slots(rank, ranks, microbatches):
    yield from ["--"] * rank
    yield from plain(microbatches, ranks - 1 - rank)


def none_while_waiting(rank, ranks, microbatches):
    yield from [None] * rank
    yield from plain(microbatches, ranks - 1 - rank)


def rows_of_all_ranks(rank, ranks, microbatches):
    return [plain(microbatches, ranks - 1 - each) for each in range(ranks)]


def floats(rank, ranks, microbatches):
    return [f"{action[0]}{int(action[1:]) / 1}" for action in plain(microbatches, 1)]


def default_list_that_stays(rank, ranks, microbatches, row=[]):  # noqa: B006
    row += plain(microbatches, ranks - 1 - rank)
    return row


_outside = []


def list_from_outside(rank, ranks, microbatches):
    _outside.extend(plain(microbatches, ranks - 1 - rank))
    return _outside


def last_rank_as_gpipe(rank, ranks, microbatches):
    return plain(microbatches, microbatches if rank == ranks - 1 else ranks - 1 - rank)


def warmup_two_per_rank(rank, ranks, microbatches):
    return plain(microbatches, 2 * (ranks - 1 - rank))


def chunked_warmup_too_long(rank, ranks, microbatches, chunks):
    stages = range(rank, ranks * chunks, ranks)
    forwards = grouped("F", stages, microbatches, ranks)
    warmup = 2 * (ranks - 1 - rank) + chunks * ranks
    return woven(forwards, grouped("B", stages[::-1], microbatches, ranks), warmup)


def yields_from_outside(rank, ranks, microbatches):
    row = _outside if rank else _outside[:0]
    row += plain(microbatches, ranks - 1 - rank)
    if not rank:
        _outside[:] = row
    yield from row


def last_back_first_in_the_end(rank, ranks, microbatches):
    row = plain(microbatches, ranks - 1 - rank)
    end = max(place for place, action in enumerate(row) if action[0] == "F") + 1
    return row[: end + 1] + row[end + 1 :][::-1]


def small_letters(rank, ranks, microbatches):
    return [action.lower() for action in plain(microbatches, ranks - 1 - rank)]


def two_in_one_text(rank, ranks, microbatches):
    for i in range(microbatches):
        yield f"F{i} B{i}"


def a_dictionary(rank, ranks, microbatches):
    return {each: plain(microbatches, ranks - 1 - each) for each in range(ranks)}


def a_fraction_of_a_loop(rank, ranks, microbatches):
    for i in range(microbatches / ranks):
        yield f"F{i}"


def returns_its_first(rank, ranks, microbatches):
    for i in range(microbatches):
        return f"F{i}"
    yield "B0"


def interleaved_without_limit(rank, ranks, microbatches, chunks):
    stages = range(rank, ranks * chunks, ranks)
    warmup = 2 * (ranks - 1 - rank) + (chunks - 1) * ranks
    forwards = grouped("F", stages, microbatches + ranks, ranks)
    whole = woven(
        forwards[: microbatches * chunks], grouped("B", stages[::-1], microbatches, ranks), warmup
    )
    return forwards[:warmup] + whole[min(warmup, microbatches * chunks) :]


def parameters_swapped(rank, microbatches, ranks):
    return plain(microbatches, ranks - 1 - rank)


def one_of_each(rank, ranks, microbatches):
    return ["F0", "B0"]


def swallows_every_exception(rank, ranks, microbatches):
    while True:
        try:
            time.sleep(0.001)
        except:  # noqa: E722
            continue
    yield


def goes_on_for_ever_in_c(rank, ranks, microbatches):
    return list(cycle("FB"))


def sleeps(rank, ranks, microbatches):
    time.sleep(60)
    return plain(microbatches, ranks - 1 - rank)


def exits(rank, ranks, microbatches):
    sys.exit()


def ends_the_process(rank, ranks, microbatches):
    os._exit(0)


# -- attacks ---------------------------------------------------------------------------------------


def row_of_the_library(rank, ranks, microbatches):
    return [str(action)[1:] for action in make("1f1b", ranks, microbatches).actions[rank]]


def reads_the_reference(rank, ranks, microbatches):
    frame = sys._getframe(1)
    while "size" not in frame.f_locals:
        frame = frame.f_back
    return [str(action)[1:] for action in frame.f_locals["size"].reference.actions[rank]]


TABLE = {size: make("1f1b", *size).actions for size in ((4, 8), (2, 6), (3, 7), (5, 8), (5, 3))}


def from_a_table_of_the_library(rank, ranks, microbatches):
    return TABLE[ranks, microbatches][rank]


def changes_the_judge(rank, ranks, microbatches):
    from dlviz.grading.assignments.one_f_one_b import checks as pipeline_checks

    names = [name for name in vars(pipeline_checks) if name.startswith("_check")]
    for name in names:
        setattr(pipeline_checks, name, lambda *_: None)
    return ["F0", "B0"]

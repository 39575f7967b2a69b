"""What the random programs of several tests have in common: they receive in an order of their own,
and take part in collectives of a half of the ranks meanwhile."""

import torch


def sums(comm, group, times, put):
    """What a group's all-reduces of tensors that grow come to, each `put` where it is to be."""
    found = []
    for i in range(times):
        tensor = put(torch.full((1 + 900 * i,), float(comm.rank + i)))
        group.all_reduce(tensor)
        found.append(tensor[0].item())
    return found


def wait_shuffled(receives, draw):
    """Wait for receives, (request, target, number, op), in a random order."""
    draw.shuffle(receives)
    for request, *_ in receives:
        request.wait()


def wrong(receives):
    """Those into whose target, of -1.0, something else came than their message, full of its
    number."""
    found = []
    for _, target, number, op in receives:
        number = float(number)
        expected = {"sum": number - 1, "min": -1, "product": -number}.get(op, number)
        found += [] if bool((target == expected).all()) else [(number, op)]
    return found


def check(results):
    """That on each rank no message was `wrong`, and that the `sums` of its half are right."""
    for rank, (wrong, sums, *_) in enumerate(results):
        members = range(rank % 2, len(results), 2)
        assert wrong == [] and sums == [sum(m + i for m in members) for i in range(5)]


def check_sent(trace, program):
    """That the Trace has the messages of the program, (src, dst, tag, ...), and no others."""
    table = trace.messages
    sent = sorted(zip(table.src.tolist(), table.dst.tolist(), table.tag.tolist(), strict=True))
    assert sent == sorted(message[:3] for message in program)

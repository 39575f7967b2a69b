"""Hints for a student's placements: the first rule that is broken, and by how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import torch

from dlviz.grading.assignments.placement.model import (
    MISTAKES,
    Case,
    Sent,
    Span,
    chosen,
    greedy,
    greedy_placement,
    messages_of,
    played,
    upward_ranks,
)
from dlviz.grading.assignments.placement.run import (
    LearnRun,
    PlacementRun,
    SampleLeft,
    UpdateLeft,
    counted,
)
from dlviz.grading.harness.feedback import listed, number
from dlviz.grading.harness.solved import CLOSE, solved

Said = tuple[str, str]  # what was seen, and a hint
NEAR = 1e-6
NAMED = {  # hints by the names of MISTAKES
    "balanced": "the work is balanced, and messages are forgotten: each group goes to the device "
    "that is free first. A group also waits until its inputs are there.",
    "messages": "messages are forgotten: an input from another device is there only when its "
    "message is, latency + bytes / bandwidth after the end of its group.",
    "inputs": "inputs are forgotten: a group starts nowhere before its parents have ended.",
    "busy": "the devices count as always free: a device runs one group at a time.",
    "scaled": "unequal devices are taken for equal: a group takes its seconds times the factor of "
    "the device.",
    "ranked": "groups are placed in the order of their numbers: the one of the highest upward rank "
    "comes first.",
    "last": "of several devices on which a group ends at the same time the lower one is due.",
    "by_start": "each group goes to where it starts first: with unequal devices it may end later "
    "there. Which of the two counts?",
}


# -- spans and messages ----------------------------------------------------------------------------


def wrong_spans(case: Case, spans: Sequence[Span]) -> Said | None:
    """The first fault of when groups run; None if there is none."""
    place, graph = case.placement, case.graph
    if len(spans) != len(graph):
        return f"play returned {number(len(spans), 'span')}", "a span for each group, by number."
    due, order = played(case)[0], sorted(range(len(spans)), key=lambda g: spans[g])
    for group in order:
        start, end = spans[group]
        if abs(end - start - case.takes(group)) > NEAR:
            why = _why_length(case, group, end - start)
            return f"{_runs(case, spans, group)}, {end - start:g} s", why
    for device in range(case.devices.count):
        own = [group for group in order if place[group] == device]
        for one, other in pairwise(own):
            if spans[other][0] < spans[one][1] - NEAR:
                return (
                    f"device {device} runs two groups at a time: {one} until {spans[one][1]:g} s, "
                    f"and {other} from {spans[other][0]:g} s on",
                    "a device runs one group at a time: when is it free again?",
                )
    for group in order:
        for parent in graph.parents[group]:
            if spans[group][0] < spans[parent][1] - NEAR:
                return (
                    f"{_runs(case, spans, group)}, and its parent {parent} ends at "
                    f"{spans[parent][1]:g} s",
                    "a dependence is forgotten: a group starts when all its parents have ended.",
                )
    arrived = {(group, to): end for group, to, _, end in messages_of(case, spans)}
    for group in order:
        for parent in graph.parents[group]:
            there = arrived.get((parent, place[group]), 0)
            if spans[group][0] < there - NEAR:
                return (
                    f"{_runs(case, spans, group)}, and the value of group {parent} is there at "
                    f"{there:g} s",
                    f"group {parent} runs on device {place[parent]}: its value takes a message, "
                    "which may have to wait for the port of the sender.",
                )
    for group in sorted(order, key=lambda g: due[g]):
        if abs(spans[group][0] - due[group][0]) > NEAR:
            return _late(case, spans, due, group)
    return None


def _late(case: Case, spans: Sequence[Span], due: Sequence[Span], group: int) -> Said:
    device, moment, ranks = case.placement[group], due[group][0], upward_ranks(case.graph)
    for other, (start, end) in enumerate(spans):
        if other != group and case.placement[other] == device and start <= moment < end:
            return (
                f"at {moment:g} s device {device} runs group {other}, of upward rank "
                f"{ranks[other]:g}; group {group} is ready there too, with {ranks[group]:g}",
                "of the groups that are ready on a device the one of the highest upward rank "
                "runs first (ties: the lower number).",
            )
    return (
        f"{_runs(case, spans, group)}; it is ready at {moment:g} s, when device {device} is idle",
        "what does this group wait for? Each device runs by itself what is ready on it.",
    )


def _runs(case: Case, spans: Sequence[Span], group: int) -> str:
    start, end = spans[group]
    return f"group {group} runs on device {case.placement[group]} from {start:g} to {end:g} s"


def _why_length(case: Case, group: int, seconds: float) -> str:
    device, own = case.placement[group], case.graph.seconds[group]
    factor = case.devices.slower[device]
    if seconds == own:
        return (
            f"unequal devices are taken for equal: device {device} takes {factor:g} times as long."
        )
    return f"group {group} takes {own:g} s, times the factor of device {device}, {factor:g}."


def wrong_messages(case: Case, spans: Sequence[Span], messages: Sequence[Sent]) -> Said | None:
    """The first fault of the messages, for the student's own spans; None if there is none."""
    if len(spans) != len(case.graph):
        return f"play returned {number(len(spans), 'span')}", "a span for each group, by number."
    due = messages_of(case, spans)
    times, pairs = Counter((each[0], each[1]) for each in messages), {each[:2] for each in due}
    for (group, to), count in times.items():
        value = f"the value of group {group}"
        users = [str(c) for c in case.graph.children[group] if case.placement[c] == to]
        if (group, to) not in pairs:
            why = "which has it" if case.placement[group] == to else "where no group needs it"
            return (
                f"{value} goes to device {to}, {why}",
                "who needs the value, and where do they run?",
            )
        if count > 1:
            return (
                f"{value} goes to device {to} {count} times",
                f"a value is sent once a consumer: groups {listed(users)} run there, and one "
                "message is enough for all of them.",
            )
    for group, to in sorted(pairs - times.keys()):
        return (
            f"the value of group {group} never goes to device {to}",
            "a group there needs it: which devices do the children of a group run on?",
        )
    seen = {each[:2]: each for each in messages}
    for group, to, _, _ in due:
        _, _, start, end = seen[group, to]
        value = f"the value of group {group} goes to device {to} from {start:g} to {end:g} s"
        if start < spans[group][1] - NEAR:
            return value, f"group {group} ends at {spans[group][1]:g} s: there is no value before."
        if abs(end - start - case.costs(group)) > NEAR:
            link = case.devices.link
            return value, (
                f"a message takes latency + bytes / bandwidth: {link.latency:g} + "
                f"{case.graph.nbytes[group]} / {link.bandwidth:g} s."
            )
    for group, to, begins, _ in due:
        _, _, start, end = seen[group, to]
        if abs(start - begins) < NEAR:
            continue
        src, value = case.placement[group], f"device {case.placement[group]} sends"
        for other in seen.values():
            if other[:2] != (group, to) and case.placement[other[0]] == src:
                if start < begins and other[2] <= start < other[3]:
                    return (
                        f"{value} two values at a time: of group {other[0]} until {other[3]:g} s, "
                        f"and of group {group} from {start:g} s on",
                        "a port sends one message at a time: when is it free again?",
                    )
        return (
            f"{value} the value of group {group} to device {to} at {start:g} s, and it is due at "
            f"{begins:g} s",
            "a port sends the values in the order in which their groups end, each first to the "
            "device of the child of the highest upward rank.",
        )
    return None


# -- a greedy --------------------------------------------------------------------------------------


def wrong_greedy(tried: PlacementRun) -> Said | None:
    """The first group that goes elsewhere than the rule says, given the ones before; None if there
    is none."""
    for case, found in zip(tried.cases, tried.left.found, strict=True):
        for group, ends in greedy(case, given=found):
            device = found[group]
            if device not in ends:
                over = Case(case.graph, case.devices, found).over[device]
                return (
                    f"group {group} goes to device {device}, whose groups hold "
                    f"{over:g} bytes more than it has",
                    "a placement over the memory is accepted: a group goes to a device that has "
                    "room for it, among those to the one where it ends first.",
                )
            best = chosen(ends)
            if device != best:
                return (
                    f"group {group} goes to device {device}, where it would end at "
                    f"{ends[device][1]:g} s, and not to device {best}, {ends[best][1]:g} s",
                    _why_greedy(tried, device, best, group),
                )
    return None


def _why_greedy(tried: PlacementRun, device: int, best: int, group: int) -> str:
    for name, how in MISTAKES.items():
        if [greedy_placement(case, **how) for case in tried.cases] == tried.left.found:
            return NAMED[name]
    if all(len({*found}) == 1 for found in tried.left.found):
        return "everything is on one device: nothing has been weighed."
    return (
        f"with the groups before it as you have placed them: when are the inputs of group {group} "
        f"on device {device} and on device {best}, and when are the devices free?"
    )


# -- learning --------------------------------------------------------------------------------------


def wrong_samples(left: SampleLeft) -> Said | None:
    """What shows that placements are not drawn from the softmax of the logits; None if they are."""
    draws, p = torch.tensor(left.found), left.logits.softmax(1)
    if len({tuple(each) for each in left.found}) == 1:
        if left.found[0] == left.logits.argmax(1).tolist():
            return (
                f"sample returns the same placement in all {len(draws)} calls",
                "argmax in place of samples: the likeliest device each time. What is never tried "
                "is never learned: draw from the probabilities.",
            )
        return (
            f"sample returns the same placement in all {len(draws)} calls",
            "rng goes on from call to call: does yours begin anew in each?",
        )
    seen = torch.nn.functional.one_hot(draws, p.shape[1]).double().mean(0)
    off = (seen - p).abs() / (p * (1 - p) / len(draws)).sqrt()
    if off.max() > 6:
        group, device = divmod(int(off.argmax()), p.shape[1])
        even = (seen - 1 / p.shape[1]).abs().max() < 0.1
        return (
            f"group {group} goes to device {device} in {100 * seen[group, device]:.0f} % of the "
            f"draws, and its probability is {100 * p[group, device]:.0f} %",
            "all devices are as likely: do the logits matter?"
            if even
            else "the probabilities of a group are the softmax of its row of logits: along which "
            "dim?",
        )
    if left.found[: len(left.again)] != left.again:
        return (
            "sample returns other placements with the same seed",
            "all draws come from rng: which call takes generator=?",
        )
    return None


def wrong_update(left: UpdateLeft, rate: float) -> Said | None:
    """What is wrong with the logits or the baseline of an update; None if nothing is."""
    if left.after is None or left.after.shape != left.logits.shape:
        return (
            "update returned no logits",
            "return the new logits and the new baseline, two things.",
        )
    k, rewards = len(left.seconds), [-(s**0.5) for s in left.seconds]
    mean = sum(rewards) / k
    p, one_hot = (
        left.logits.softmax(1),
        torch.nn.functional.one_hot(torch.tensor(left.placements), left.logits.shape[1]).double(),
    )  # (samples, groups, devices)
    seen = (left.after - left.logits).flatten()
    due = [rate * (r - left.baseline) / k for r in rewards]
    parts = [(each - p).flatten() for each in one_hot]
    if not _same(seen, due, parts):
        return (
            f"the logits change by up to {seen.abs().max():.3g} in an update of {k} samples",
            _why_change(left, seen, parts, due, rewards, rate, one_hot, p),
        )
    new = 0.9 * left.baseline + 0.1 * mean
    if left.new_baseline is None or abs(left.new_baseline - new) > CLOSE:
        said = "no number" if left.new_baseline is None else f"{left.new_baseline:.4g}"
        return (
            f"the baseline becomes {said}, from {left.baseline:.4g} and rewards of {mean:.4g} in "
            "the mean",
            "the new baseline is 0.9 times the old one and 0.1 times the mean reward.",
        )
    return None


def _same(seen: torch.Tensor, factors: Sequence[float], parts: Sequence[torch.Tensor]) -> bool:
    made = torch.stack([f * part for f, part in zip(factors, parts, strict=True)]).sum(0)
    return bool((seen - made).abs().max() < CLOSE)


def _why_change(
    left: UpdateLeft, seen: torch.Tensor, parts: Sequence[torch.Tensor], due: Sequence[float],
    rewards: Sequence[float], rate: float, one_hot: torch.Tensor, p: torch.Tensor,
) -> str:  # fmt: skip
    k, mean = len(rewards), sum(rewards) / len(rewards)
    if not seen.any():
        return "nothing has changed: are the new logits returned?"
    factors = solved(seen, parts)
    if factors is not None:
        new = 0.9 * left.baseline + 0.1 * mean
        for known, hint in [
            ([-f for f in due], "the reward has the wrong sign: a placement that takes long "
             "becomes likelier. The reward is minus the root of the seconds."),
            ([rate * (-r - left.baseline) / k for r in rewards], "the reward has the wrong "
             "sign: it is minus the root of the seconds, so that a short time is a high reward."),
            ([rate * r / k for r in rewards], "there is no baseline: every reward is below 0, so "
             "that each sample is made less likely. What counts is the reward minus the baseline."),
            ([rate * (r - new) / k for r in rewards], "the new baseline is used: the samples "
             "themselves are in it. What was expected before they were drawn?"),
            ([rate * (r - mean) / k for r in rewards], "the mean of these samples is the baseline: "
             "here it is the one that is given."),
            ([rate * (-s - left.baseline) / k for s in left.seconds], "the seconds themselves are "
             "the reward: it is minus their root."),
            ([f * k for f in due], f"the {k} samples are added: their mean is due."),
            ([f / rate for f in due], "lr is in no number."),
            ([rate * (left.baseline + r) / k for r in rewards], "the baseline is added: it is "
             "subtracted from the reward."),
        ]:  # fmt: skip
            if torch.allclose(torch.tensor(factors), torch.tensor(known), rtol=0, atol=1e-5):
                return hint
        return (
            f"sample 0 counts {factors[0]:.3g} times and {due[0]:.3g} times is due: lr times its "
            f"reward minus the baseline, by {k} samples."
        )
    if _same(seen, due, [each.flatten() for each in one_hot]):
        return (
            "only the devices that were drawn change: the gradient of log softmax has minus the "
            "probability for every device of the row, too."
        )
    if _same(seen, due, [(each * (1 - p)).flatten() for each in one_hot]):
        return "the devices that were not drawn change too: by minus their probability."
    return (
        "for each sample and group the gradient of log p is 1 - p at the device that was drawn and "
        "-p at the others: is it p of the softmax of the row, and of the logits before the update?"
    )


def wrong_learning(tried: LearnRun) -> Said | None:
    """What shows that nothing was learned, or the best was not returned; None if all is right."""
    left = tried.left
    for run in zip(left.found, left.plays, left.seconds, strict=True):
        if wrong := _wrong_best(*run, left.odd):
            return wrong
    every = tried.all
    mean, best = sum(every) / len(every), every[0]
    last = [each for seconds in left.seconds for each in counted(seconds[-50:])]
    reached, runs = sum(last) / len(last), number(len(left.seconds), "run")
    if reached > mean - 0.3 * (mean - best):
        return (
            f"the last 50 plays take {reached:.3g} s in the mean of {runs}; all placements "
            f"together {mean:.3g} s, the best {best:g} s",
            "the placements become worse: is what is good made likelier?"
            if reached > 1.02 * mean
            else "nothing is learned: are the samples drawn from the logits that update returned?",
        )
    return None


def _wrong_best(
    placement: list[int], plays: list[list[int]], seconds: list[float | None], odd: str
) -> Said | None:
    """What is wrong with the placement that a run returned."""
    if not plays:
        return "learn plays no placement", "what tells how long a placement takes? Call play."
    if not placement:
        return f"learn returned {odd or 'nothing'}", "return the best placement, a device a group."
    found = tuple(placement)
    known = {tuple(each): s for each, s in zip(plays, seconds, strict=True)}
    fits = [s for s in seconds if s is not None]
    if found in known and known[found] is None:
        return (
            "learn returned a placement that does not fit",
            "a placement over the memory is accepted: play returns None for it, and it is the best "
            "of nothing.",
        )
    if len({*known}) == 1:
        return (
            f"all {len(plays)} plays are of one placement",
            "is a new placement drawn for each? argmax in place of samples tries nothing new.",
        )
    if found not in known or known[found] != min(fits):
        took = known.get(found)
        said = "that was never played" if took is None else f"of {took:g} s"
        return (
            f"learn returned a placement {said}; the best it played took {min(fits):g} s",
            "keep the best placement of all that were played, and return it.",
        )
    return None

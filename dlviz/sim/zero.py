"""What a rank holds of parameters, gradients and optimizer state, and what ZeRO sends to hold less.

    stage   bytes a rank                   what is cut over the N ranks
    0       (v + g + r) Ψ                  nothing: plain data parallelism
    1       (v + g + r/N) Ψ                the optimizer state
    2       (v + (g + r)/N) Ψ              and the gradients
    3       (v + g + r) Ψ / N              and the parameters

Ψ parameters, of each v bytes for its value, g for its gradient, r for the update rule: 4, 4, 8 with
Adam in float32, and 2, 2, 12 in mixed precision, whose rule holds a float32 copy too. Padding, the
layer or bucket that a rank has whole for a moment, and activations come on top.

Source: S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", SC 2020, sections 5 and 7, table 1.
"""

from __future__ import annotations

from fractions import Fraction

from dlviz.counts import check_amounts, check_counts, closed_form

STAGES = (0, 1, 2, 3)


@closed_form
def zero_bytes(
    parameters: float,
    ranks: int,
    stage: int,
    values: float = 4,
    gradients: float = 4,
    rule: float = 8,
) -> float:
    """Bytes of `parameters` parameters, their gradients and optimizer state on each of `ranks`
    ranks, at a stage of ZeRO (0: all whole); `values`, `gradients` and `rule` are bytes a
    parameter.

    Raises ValueError for another stage, fewer than 1 rank, and amounts below 0."""
    check_amounts(parameters=parameters)
    return float(Fraction(parameters) * _a_parameter(ranks, stage, values, gradients, rule))


@closed_form
def largest_model(
    memory: float,
    ranks: int,
    stage: int,
    values: float = 4,
    gradients: float = 4,
    rule: float = 8,
) -> int:
    """The most parameters whose `zero_bytes` fit `memory` bytes a rank.

    Raises ValueError as `zero_bytes`, and where a parameter takes no bytes at all."""
    check_amounts(memory=memory)
    each = _a_parameter(ranks, stage, values, gradients, rule)
    if not each:
        raise ValueError(
            f"values={values!r}, gradients={gradients!r} and rule={rule!r} are 0: any model fits; "
            "give one that is above 0."
        )
    return int(Fraction(memory) // each)


@closed_form
def deepspeed_bytes(parameters: float, ranks: int, stage: int, largest_layer: float = 0) -> float:
    """Bytes on each rank by DeepSpeed's own estimator for mixed precision without offload: 4Ψ +
    16Ψ/N at stage 2, 18Ψ/N + 4 * `largest_layer` (its parameters) at stage 3.

    It is above `zero_bytes(..., 2, 2, 12)` by 2Ψ + 2Ψ/N at stage 2 and 2Ψ/N + 4 largest layers at
    stage 3. The update turns the rank's gradients into float32, 4 bytes a parameter where the paper
    counts float16's 2: 16 and 18 in place of 14 and 16. Stage 2 takes the float16 gradients for
    whole, as they can be at the end of a backward, and stage 3 adds the gathered values and
    gradients of one layer. Later releases have 2Ψ + 18Ψ/N at stage 2: float16 gradients of the
    shard alone.

    Raises ValueError for a stage that it does not estimate, fewer than 1 rank, and amounts below 0.

    Source: DeepSpeed, docs/code-docs/source/memory.rst, estimate_zero2_model_states_mem_needs and
    estimate_zero3_model_states_mem_needs."""
    check_counts(ranks=ranks)
    check_amounts(parameters=parameters, largest_layer=largest_layer)
    if _check_stage(stage) < 2:
        raise ValueError(f"stage={stage!r} has no estimator in DeepSpeed: use 2 or 3.")
    if stage == 2:
        return 4 * parameters + 16 * parameters / ranks
    return 18 * parameters / ranks + 4 * largest_layer


@closed_form
def zero_traffic(
    stage: int, microbatches: int = 1, reshard: bool = True, naive: bool = False
) -> int:
    """What a rank sends in a step of `microbatches`, in units of (N-1)/N Ψ elements: a
    reduce-scatter or an all-gather of all parameters is 1, an all-reduce is 2.

    Stage 0 all-reduces once, stage 1 reduce-scatters and gathers the new parameters once, or
    all-reduces in place of the former (`naive`). Stage 2 has no room for whole gradients, so that
    each microbatch is reduce-scattered; stage 3 gathers for its forward and its backward besides.
    Without `reshard`, FSDP2's reshard_after_forward=False, the backward finds the parameters that
    the forward gathered, and frees them: one gather less for each microbatch.

    Raises ValueError for another stage, fewer than 1 microbatch, `naive` at a stage other than 1,
    and reshard=False below stage 3."""
    check_counts(microbatches=microbatches)
    _check_stage(stage)
    if naive and stage != 1:
        raise ValueError(f"naive={naive!r} is a form of stage 1, not of {stage}: leave it out.")
    if not reshard and stage != 3:
        raise ValueError(
            f"reshard={reshard!r} is a form of stage 3: at {stage} no rank gathers parameters for "
            "a forward, so leave it out."
        )
    if stage == 3:
        return (3 if reshard else 2) * microbatches
    return microbatches + 1 if stage == 2 else 2 + naive


def _a_parameter(ranks: int, stage: int, values: float, gradients: float, rule: float) -> Fraction:
    """Bytes on a rank for one parameter, not rounded."""
    check_counts(ranks=ranks)
    check_amounts(values=values, gradients=gradients, rule=rule)
    _check_stage(stage)
    held = zip((3, 2, 1), (values, gradients, rule), strict=True)  # cut from which stage on
    return sum((Fraction(n) / (ranks if stage >= cut else 1) for cut, n in held), Fraction())


def _check_stage(stage: int) -> int:
    if isinstance(stage, bool) or stage not in STAGES:
        raise ValueError(f"stage={stage!r} is not a stage of ZeRO: use 0 (none), 1, 2 or 3.")
    return stage

"""A game in levels, in which a reader finds the schedules of the zoo one by one.

    level 2    3 ranks, 5 microbatches                             21 slots    GPipe
    level 3    the same, at most 3 microbatches in flight          21 slots    1F1B
    level 5    the same, a backward may be split into I and W      17 slots    ZB-H1

Each level asks one question, has a target, and caps what a rank may hold; a cap or a target rules
out the answer to the previous level. F, I and W last one slot, B two. No legal schedule is shorter
than its target: a rank starts after the forwards of earlier stages, has its own work, and its last
B is followed by the backwards of earlier stages.
Source: each level names the paper of its schedule; the form is that of LLM-Training-Puzzles (Rush,
2023), where a pipeline is filled under a cap on memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlviz.board.drawing import Drawing
from dlviz.board.pipeline import Pipeline
from dlviz.schedules.orders import loop, vee
from dlviz.schedules.papers import PAPERS
from dlviz.sim import Costs


@dataclass(frozen=True)
class Level:
    """A question to answer by drawing a schedule.

    `slots`: the target, from the first start to the last end; `limit`: the most microbatches (with
    several chunks on a rank: chunks) that a rank may hold, None: no cap; `inside`: the idle time
    that a rank may have between its first action and its last, None: any; `answer`: the schedule of
    the zoo that solves it; `section`: the place in its paper; `lesson`: what it shows.
    """

    title: str
    question: str
    stage_rank: tuple[int, ...]
    microbatches: int
    backward: str
    slots: int
    limit: int | None
    inside: int | None
    answer: str
    section: str
    lesson: str

    @property
    def source(self) -> str:
        """The paper of the schedule that solves it, and the place in it."""
        return f"{PAPERS[self.answer].cited}, {self.section}"

    def pipeline(self, costs: Costs) -> Pipeline:
        """The pipeline to draw on; by `costs` F, I and W last one slot and B two."""
        return Pipeline(self.stage_rank, self.microbatches, costs, self.backward, self.limit)

    def solved(self, drawing: Drawing) -> bool:
        """Whether `drawing` reaches the target; the cap is a rule of the pipeline."""
        short = drawing.slots <= self.slots
        tight = self.inside is None or drawing.idle <= self.inside
        return drawing.complete and drawing.legal and short and tight


LEVELS = (
    Level(
        "One microbatch",
        "One microbatch passes forward and backward through two ranks: in which order can the four "
        "actions run?",
        loop(2),
        microbatches=1,
        backward="whole",
        slots=6,
        limit=None,
        inside=None,
        answer="naive",
        section="figure 2(b)",
        lesson="One rank works at a time, so each of the two ranks is idle half of the time.",
    ),
    Level(
        "Fill the pipe",
        "Five microbatches pass through three ranks: how soon can all of them be done?",
        loop(3),
        microbatches=5,
        backward="whole",
        slots=21,
        limit=None,
        inside=None,
        answer="gpipe",
        section="section 2.3",
        lesson="GPipe runs all forwards, then all backwards. The bubble ratio is (p-1)/m = 0.4; "
        "every rank holds all 5 microbatches.",
    ),
    Level(
        "The same time in less memory",
        "A rank has room for only three microbatches: can the step still take 21 slots?",
        loop(3),
        microbatches=5,
        backward="whole",
        slots=21,
        limit=3,
        inside=None,
        answer="1f1b",
        section="section 3.2",
        lesson="1F1B runs each backward as soon as possible. The bubble is that of GPipe, but "
        "rank r holds at most p-r microbatches, however many a step has.",
    ),
    Level(
        "Two chunks on a rank",
        "Rank 0 holds stages 0 and 2, rank 1 holds stages 1 and 3: how many slots do smaller "
        "stages save against the 30 that 1F1B takes without chunks?",
        loop(2, 2),
        microbatches=4,
        backward="whole",
        slots=27,
        limit=5,
        inside=None,
        answer="interleaved",
        section="section 2.2.2",
        lesson="With v chunks on each rank, filling and draining take 1/v of the time: the bubble "
        "ratio is (p-1)/(vm) = 0.125, not 0.25. The price is messages: three borders, not one.",
    ),
    Level(
        "Split the backward",
        "The stage before waits for I, and no stage waits for W: how much of the bubble can W fill "
        "if a rank has room for only three microbatches?",
        loop(3),
        microbatches=5,
        backward="split",
        slots=17,
        limit=3,
        inside=None,
        answer="zb_h1",
        section="section 2.1",
        lesson="ZB-H1 moves W to where 1F1B drains. With no rank fuller than 1F1B's fullest the "
        "bubble ratio is (p-1)/(3m) = 0.133, a third of that of 1F1B.",
    ),
    Level(
        "Buy the rest with memory",
        "A rank has room for five microbatches: can every rank work without a gap from its first "
        "action to its last?",
        loop(3),
        microbatches=5,
        backward="split",
        slots=17,
        limit=5,
        inside=0,
        answer="zb_h2",
        section="section 2.2",
        lesson="ZB-H2 doubles the warm-up of ZB-H1. If ranks start the next step without waiting "
        "for each other, no bubble is left; the price is 2p-1 microbatches in flight.",
    ),
    Level(
        "Turn round in a V",
        "Rank 0 holds the first and the last stage: can every rank work without a gap, although "
        "it has room for no more than four chunks, as much as two microbatches?",
        vee(2),
        microbatches=3,
        backward="split",
        slots=19,
        limit=4,
        inside=0,
        answer="zbv",
        section="section 6",
        lesson="ZB-V computes the loss on rank 0 and begins the backwards there. It has no gap, "
        "and no rank holds more than 1F1B's fullest; the price is twice the messages.",
    ),
)
"""The levels in their order; level 1 is LEVELS[0]."""

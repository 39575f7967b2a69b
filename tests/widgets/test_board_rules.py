"""The board's rules in the browser: after each gesture the state is that of Python's board."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import node
import pytest

from dlviz.board.drawing import Drawing, drawn
from dlviz.board.levels import LEVELS
from dlviz.board.pipeline import Pipeline
from dlviz.schedules import NAMES, make
from dlviz.schedules.orders import loop, vee
from dlviz.sim import Costs
from dlviz.widgets.drawing import ShadedBoard
from dlviz.widgets.pipelines import DRAWN, picture_of, played

PLAYED = """return v[0].map(({ state, rules, gestures }) => {
    let table = m.tableOf(state, rules);
    const after = (asked) => m.stateOf(table = m.apply(table, asked));
    return [m.stateOf(table), ...gestures.map(after)];
});"""
REMARKABLE = [
    "frog", "9F0", "0F99", "0Z0", "(0F0;0F1)OVERLAP_F_B", " 0F0 ", "it's", 'a "b"', "a\\b'\"\n",
]  # fmt: skip


class Game:
    """Gestures on a board of Python's, and what its state was before the first and after each."""

    def __init__(self, drawing, level=None):
        self.board = ShadedBoard(drawing, level)
        self.start, self.rules = self.board.state(), self.board.rules()
        self.gestures, self.states = [], [self.start]

    def __call__(self, do, **more):
        asked = {"do": do, **more}
        self.gestures.append(asked)
        self.board.apply(asked)
        self.states.append(self.board.state())


def check(games):
    """Play the same in the browser's rules, and compare every state, key by key."""
    given = [{"state": g.start, "rules": g.rules, "gestures": g.gestures} for g in games]
    for game, states in zip(games, node.run("board/rules.js", PLAYED, given), strict=True):
        for number, (ours, theirs) in enumerate(zip(game.states, states, strict=True)):
            ours = json.loads(json.dumps(ours))
            assert [*ours] == [*theirs]
            wrong = {key: (ours[key], theirs[key]) for key in ours if ours[key] != theirs[key]}
            assert not wrong, f"after {game.gestures[:number]}: {wrong}"


def size_of(name, ranks, microbatches):
    schedule = make(name, ranks, microbatches)
    backward = "none" if name == "inference" else "whole"
    return schedule, Pipeline(schedule.stage_rank, schedule.microbatches, Costs(), backward)


def test_every_known_schedule_is_laid_in_by_name_and_by_csv_and_told_as_python_tells_it():
    games = []
    for name in NAMES:
        for ranks, microbatches in ((1, 2), (2, 4), (3, 6), (4, 8)):
            schedule, pipeline = size_of(name, ranks, microbatches)
            game = Game(Drawing(pipeline))
            game("known", name=name)
            game("tighten")
            game("undo")
            game("csv", text=schedule.to_csv())
            game("reset")
            game("csv", text=" / ".join(schedule.to_csv().replace(",", " ").splitlines()))
            last = game.board.drawing.placed[-1]
            at = {"action": str(last.action), "rank": last.rank, "slot": last.slot}
            game("remove", **{"from": at})
            game("advise")
            games.append(game)
    check(games)


PIPELINES = {
    "whole": lambda: Pipeline(loop(3), 3, Costs()),
    "split, limited": lambda: Pipeline(loop(2), 4, Costs(), "split", limit=2),
    "either, chunks, latency": lambda: Pipeline(loop(2, 2), 2, Costs(latency=0.5), "either"),
    "a V with overlaps and a limit": lambda: Pipeline(vee(2), 4, Costs(), "whole", 5, True),
    "none": lambda: Pipeline(loop(3), 4, Costs(latency=1.0), "none", limit=2),
    "a slow stage, either, overlaps": lambda: Pipeline(
        loop(2), 3, Costs((1.0, 2.0), None, (1.0, 1.5), (0.5, 1.0)), "either", None, True
    ),
}


def anything(game, draw):
    """A gesture, legal or not."""
    drawing = game.board.drawing
    pipeline, placed = drawing.pipeline, drawing.placed
    some = draw.choice(placed) if placed else None
    at = some and {"action": str(some.action), "rank": some.rank, "slot": some.slot}
    spot = {"rank": draw.randrange(pipeline.ranks), "slot": draw.randrange(max(4, drawing.end + 3))}
    what = draw.random()
    ghosts = drawing.ghosts
    if what < 0.4 and ghosts:
        placed = draw.choice(ghosts).placed
        return game("place", action=str(placed.action), rank=placed.rank, slot=placed.slot)
    if what < 0.55:
        kinds = "F" if pipeline.backward == "none" else "FBIW"
        stage, microbatch = draw.randrange(pipeline.stages), draw.randrange(pipeline.microbatches)
        action = f"{stage}{draw.choice(kinds)}{microbatch}"
        return game("place", action=action, **(spot if draw.random() < 0.7 else {}))
    if what < 0.7 and at:
        return game("move", **{"from": at}, **spot)
    if what < 0.78 and at:
        return game("remove", **{"from": at})
    if what < 0.81:
        return game("remove", **{"from": {"action": "0F0", "rank": 0, "slot": 77}})
    if what < 0.84:
        slot = draw.choice([0, 9999, -1])
        return game("place", action=draw.choice(REMARKABLE), rank=0, slot=slot)
    if what < 0.88:
        return game("advise")
    if what < 0.92:
        limits = [None, 1, 2, 5, 0, "few", 1.5]
        ways = ["none"] if pipeline.backward == "none" else ["whole", "split", "either", "both"]
        new = {"limit": draw.choice(limits), "backward": draw.choice(ways)}
        name = draw.choice(["limit", "backward", "overlaps"])
        return game("set", **{name: new.get(name, draw.random() < 0.5)})
    return game(draw.choice(["undo", "undo", "redo", "tighten", "tighten", "reset"]))


def test_a_thousand_random_gestures_give_the_states_that_python_gives():
    games = []
    for number, made in enumerate(PIPELINES.values()):
        draw = random.Random(number)
        for _ in range(3):
            game = Game(Drawing(made()))
            for _ in range(56):
                anything(game, draw)
            games.append(game)
    assert sum(len(game.gestures) for game in games) >= 1000
    laws = {fault.law for game in games for fault in game.board.drawing.faults}
    assert laws == {"rank", "twice", "together", "needs", "memory"}, "the games try every rule"
    check(games)


CSVS = [
    "", "frog", "0F0,0F0\n1F0", "0F0,0B0\n1F0,1B0", "0B0,0F0\n1F0,1B0\n", "1F0\n0F0",
    "0F0\n\n1F0", "0F0,1F0\n", "0F0,0B0,0I0\n1F0", "\ufeff0F0;\n", "0F0,2F0\n1F0,1F1,1F2,1F3,1F4",
    "0F0 / 1F0 1F1 1F2 1B2 1B1 1F7",
    "0F0,0F1,0F2,0B0,0F3,0B2,0B1,0B3,0B4,0F4,0B5\n1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3",
    "0F0,0Z0\n1F0", "(0F0;0F1)OVERLAP_F_B\n1F0", "0F0,(0F1;0B0)OVERLAP_F_B\n1F0,1B0",
    "2F0\n1F0,0F0", "5F0", "0F0\n1F0,1B0,0B0",
]  # fmt: skip


@pytest.mark.parametrize("level", [None, LEVELS[0]])
def test_a_csv_is_drawn_or_refused_in_the_same_words(level):
    pipeline = level.pipeline(Costs()) if level else Pipeline(loop(2), 4, Costs())
    game = Game(Drawing(pipeline), level)
    for text in CSVS:
        size = game.board.drawing.pipeline.stage_rank
        other = Game(game.board.drawing, level)
        other("csv", text=text)
        if other.board.drawing.pipeline.stage_rank == size:
            game("csv", text=text)
    assert len(game.gestures) > 15
    check([game])


def test_every_level_is_played_to_its_solution_and_by_a_schedule_that_is_not_its_own():
    games = []
    for level in LEVELS:
        game = Game(Drawing(level.pipeline(Costs())), level)
        schedule = make(level.answer, max(level.stage_rank) + 1, level.microbatches)
        for row in schedule.actions:
            for action in row:
                game("place", action=str(action))
        game("csv", text=schedule.to_csv())
        game("advise")
        game("known", name="1f1b")
        game("set", limit=9)
        game("csv", text=make("gpipe", 3, 5).to_csv())
        game("csv", text=make("1f1b", 3, 5).to_csv())
        game("csv", text=make("zb_h1", 3, 5).to_csv())  # short enough for level 6, with idle time
        assert any(state["level"]["answer"] for state in game.states)
        games.append(game)
    check(games)


LISTS = ("stage", "microbatch", "start", "length", "half", "source")


def spread(picture):
    """A picture with its columns as lists, and without what names it."""
    count = len(picture["kind"])
    picture = {k: v for k, v in picture.items() if k not in ("name", "title")}
    for name in LISTS:
        value = picture[name]
        picture[name] = value if isinstance(value, list) else [value] * count
    total = sum(picture["held"]["counts"])
    for name in ("time", "many"):
        value = picture["held"][name]
        picture["held"][name] = value if isinstance(value, list) else [value] * total
    return json.loads(json.dumps(picture))


def test_a_drawing_is_played_in_the_browser_as_it_is_simulated_in_python():
    values = {"latency": 0.5, "slow_stage": None, "backward": None}
    costs = Costs(1.5, None, 1.0, 0.5, latency=0.5)
    given, expected = [], []
    for name in NAMES:
        for ranks, microbatches in ((1, 2), (2, 4), (3, 6)):
            whole = drawn(make(name, ranks, microbatches), costs)
            for count in {len(whole.placed), 2 * len(whole.placed) // 3, 1}:
                part = Drawing(whole.pipeline, whole.placed[:count])
                board = ShadedBoard(part)
                given.append({"state": board.state(), "rules": {"known": [], "level": None}})
                made = replace(part.schedule(), name=DRAWN)
                expected.append(picture_of(made, played(made, costs), values))
    code = """return v[0].map(({ state, rules }) =>
        pictureOf(m.tableOf(state, rules).present, state.shades));"""
    found = node.run("board/rules.js", code, given, also={"pictureOf": "board/picture.js"})
    for ours, theirs in zip(expected, found, strict=True):
        ours = spread(ours)
        assert [*ours] == [*theirs]
        for key, value in ours.items():
            if key in ("makespan", "ratio", "fraction", "inside"):
                assert theirs[key] == pytest.approx(value, abs=1e-9), key
            else:
                assert theirs[key] == value, (key, theirs["kind"])

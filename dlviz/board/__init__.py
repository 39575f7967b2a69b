"""The board on which a schedule is drawn by hand: the kernel's side.

    pipeline     what is drawn for: ranks, stages, costs in slots, the limit
    drawing      the placed actions, and whether they may be played
    csv          a drawing from text       history    undo, redo
    levels       the questions of the game sentences  shared with the page
    board        what the page drew, and what it has to know

Gestures, the rules in words, hints and the verdict belong to the page:
dlviz/widgets/static/board. The simulator's engine lays schedules out, in slots.
"""

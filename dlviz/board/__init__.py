"""The board on which a schedule is drawn by hand, as the kernel has it.

    pipeline     what is drawn for: ranks, stages, costs in slots, the limit
    drawing      what was put where, and whether it may be played
    csv          a drawing from text       history    undo, redo
    levels       the questions of the game sentences  what the page says too
    board        what the page drew, and what it has to know

What a gesture does, the rules in words, hints and verdict are the page's:
dlviz/widgets/static/board. What is laid out is laid out by the simulator's engine, in slots.
"""

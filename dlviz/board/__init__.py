"""The board on which a schedule is drawn by hand, without its widget.

    pipeline     what is drawn for: ranks, stages, costs in slots, the limit
    grid         what is taken of ranks and slots, and where an action would fit
    placement    what was put where          drawing    the same with gestures and what follows
    faults       which rules are broken      ghosts     what may come next
    idle         why a rank idles            score      what it comes to
    history      undo, redo                  csv        a drawing from text
    known        the zoo on this pipeline    moves      good next moves
    levels       the questions of the game   words      verdict and advice
    board        gestures in, state out

What is laid out is laid out by the simulator's engine, in slots.
"""

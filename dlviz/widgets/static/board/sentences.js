// What both the page and the kernel say of a drawing: one table, which dlviz/board/sentences.py reads as JSON.

export const SENTENCES = {
  "overlap": "{action} is no overlap: an overlap is one forward and one backward.",
  "stage": "{action} cannot be drawn: the stages are 0 to {last}.",
  "microbatch": "{action} cannot be drawn: the microbatches are 0 to {last}.",
  "forwards": "{action} cannot be drawn: this pipeline runs forwards only.",
  "rank": "rank {rank} does not exist: the ranks are 0 to {last}.",
  "slot": "slot {slot} is off the grid: the slots are 0 to {last}.",
  "there": "{action} is already at slot {slot} of rank {rank}: choose another slot.",
  "memory": "{action} (rank {rank}, slot {slot}) makes rank {rank} hold {held} {what}; the limit is {limit}.",
  "release": "Run a {kind} of rank {rank} before {action}.",
  "empty": "Nothing is drawn yet: place an action on the grid.",
  "count": "{name}={value} has to be a whole number, 1 or more.",
  "backward": "backward={value} is unknown: use one of {known}.",
  "fixed": "A level is drawn by hand, on its own pipeline.",
  "other":
    "This text is a schedule of another size or of other kinds of action than this level: paste one of this level."
};

"""Pipeline parallelism, one step of it by any schedule.

gpipe_by_hand.py       only GPipe, as in the lecture: read it first
run.py                 train_step and infer: the actions of a rank, one after the other
actions.py             an action on the timeline, and its time
trainer.py             train: step after step
stage_worker.py        what an action computes, and the state between actions
stage_backward.py      a forward and its backward (B)
split_backward.py      the backward in two (I and W)
microbatches.py        the weight of each loss in the batch's mean
p2p.py, shapes.py      messages between neighbouring stages, and their shapes
weight_stashing.py     old weights for schedules that do not flush
shared_parameters.py   parameters that stages of several ranks share
saved_activations.py   the bytes that a forward saves
partition.py           a model cut into stages
devices.py             the labs' devices
checks.py              whether schedule, stages and batch fit together
"""

from dlviz.parallel.pipeline.devices import devices
from dlviz.parallel.pipeline.partition import split
from dlviz.parallel.pipeline.run import infer, train_step
from dlviz.parallel.pipeline.shapes import Shapes
from dlviz.parallel.pipeline.trainer import train

__all__ = ["Shapes", "devices", "infer", "split", "train", "train_step"]

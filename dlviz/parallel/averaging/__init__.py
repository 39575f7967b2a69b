"""Each rank trains its own model; the models are averaged.

easgd/        each is tied to a centre
local_sgd.py  all are averaged every few steps
gossip.py     each is averaged with its neighbours
ensemble.py   only the predictions are averaged
"""

"""Ranks that train models of their own, and average them.

easgd/        each is tied to a centre
local_sgd.py  all are averaged every few steps
gossip.py     each is averaged with its neighbours
ensemble.py   what they predict is averaged, and nothing else
"""

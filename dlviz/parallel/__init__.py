"""Strategies for training one network on many ranks, one a file."""

from dlviz.parallel import data, pipeline

__all__ = ["data", "pipeline"]

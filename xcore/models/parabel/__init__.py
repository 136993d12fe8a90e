"""Parabel: a tree of labels with a linear classifier at every edge."""

from xcore.models.parabel.model import FittedParabel, Parabel

__all__ = ["FittedParabel", "Parabel"]

"""The stage that comes before training: a tree that mimics how labels follow from the features."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from xcore.models.negative_sampling.pairs import Positives
from xcore.sampling.sampler import FittedTree, Tree, load_tree
from xcore.training.context import FitContext
from xcore.training.data import TrainingData
from xcore.training.stages import Stage


class LabelSampler(Positives, Stage):
    """A sampler tree of the labels, fitted to the positives that a model with the same options trains on."""

    artifact: ClassVar[str] = "sampler"
    learns_labels: ClassVar[bool] = True
    is_random: ClassVar[bool] = False

    tree: Tree = Field(Tree(), description="How the tree is fitted.")

    def fit(self, data: TrainingData, context: FitContext) -> FittedTree:
        """Fit to the positives of vectors (n, k); classes are numbered as a model with the same positives does.

        The tree mimics which labels rows have. So a positive of weight q takes part with the chance q: by a hash of its
        place, the same in every run.
        """
        split = self.split(data.Y)
        pairs = split.train.drawn()
        return self.tree.fit(data.X[pairs.rows], pairs.classes, len(split.labels))

    @classmethod
    def load(cls, directory: Path) -> FittedTree:
        """Open what `FittedTree.save` wrote."""
        return load_tree(directory, "sampler")

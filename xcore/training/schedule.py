"""How long and how fast a torch model trains. No torch in here: options are read without it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xcore.numeric.matrices import Int64

WARM_UP = 0.05  # share of the steps in which the learning rate rises to its full value
FEWEST_STEPS = 10  # of an epoch; small data take smaller batches


@dataclass(frozen=True)
class Schedule:
    """The course of a training.

    Attributes
    ----------
    n_examples, epochs, batch_size : int
        Batches shrink where an epoch would have fewer than 10 steps.
    learning_rate, weight_decay : float
        Of AdamW. The rate rises linearly over the first twentieth of the steps and then falls linearly to 0.
    patience : int
        Epochs without a better dev score after which training stops; 0: never.
    select : str
        Metric of the dev rows that chooses the weights to keep.
    average_from : float
        Share of the epochs after which the weights at the end of each epoch are averaged; 1: never.
    judges_start : bool
        Also measure the weights before the first step, and keep them if no epoch is better: for a training that
        continues another one.
    seed : int
        Orders the examples and draws dropout.
    """

    n_examples: int
    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    seed: int
    patience: int = 0
    select: str = ""
    average_from: float = 1.0
    judges_start: bool = False

    @property
    def batch(self) -> int:
        return max(1, min(self.batch_size, -(-self.n_examples // FEWEST_STEPS)))

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.n_examples // self.batch)

    @property
    def total(self) -> int:
        return self.epochs * self.steps_per_epoch

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        warm = max(1.0, WARM_UP * self.total)
        if step + 1 < warm:
            return self.learning_rate * (step + 1) / warm
        return self.learning_rate * (self.total - step) / max(self.total - warm + 1, 1.0)

    def order(self, epoch: int) -> Int64:
        """The examples in the order of an epoch, by seed and counter: a resumed training sees the same batches."""
        return np.random.default_rng([self.seed, epoch]).permutation(self.n_examples)

    def examples(self, order: Int64, number: int) -> Int64:
        """The examples of a batch of the epoch, ascending."""
        return np.sort(order[number * self.batch : (number + 1) * self.batch])

    def is_averaged(self, epoch: int) -> bool:
        return epoch + 1 > self.average_from * self.epochs

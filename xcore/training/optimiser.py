"""AdamW on whole tensors, and on the touched rows of large tables."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from xcore.training.rows import BETAS, EPSILON, step_rows


@dataclass
class Moments:
    """A trained tensor with Adam's running means of its gradient and squared gradient."""

    value: torch.Tensor
    mean: torch.Tensor
    square: torch.Tensor

    @classmethod
    def of(cls, value: torch.Tensor) -> Moments:
        return cls(value, torch.zeros_like(value), torch.zeros_like(value))

    def step(self, gradient: torch.Tensor, rate: float, decay: float, number: int) -> None:
        """One step on the whole tensor; biases and norms, which have one dimension, do not decay."""
        _adamw(self.value, self.mean, self.square, gradient, rate, decay if self.value.ndim > 1 else 0.0, number)

    def step_rows(self, rows: torch.Tensor, gradient: torch.Tensor, rate: float, decay: float, number: int) -> None:
        """One step on some rows (m,) with their gradients (m, d); other rows and their moments stay as they are.

        Cost O(m d), whatever the size of the table.
        """
        if self.value.device.type == "cpu":
            arrays = [own.numpy() for own in (self.value, self.mean, self.square, rows, gradient)]
            step_rows(arrays, rate, decay, number)
            return
        rows = rows.to(self.value.device)
        value, mean, square = self.value[rows], self.mean[rows], self.square[rows]
        _adamw(value, mean, square, gradient, rate, decay, number)
        self.value[rows], self.mean[rows], self.square[rows] = value, mean, square


def _adamw(
    value: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    gradient: torch.Tensor,
    rate: float,
    decay: float,
    number: int,
) -> None:
    """Decoupled weight decay (Loshchilov and Hutter, 2019), in place; `number` counts steps from 1."""
    mean.mul_(BETAS[0]).add_(gradient, alpha=1 - BETAS[0])
    square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
    spread = (square / (1 - BETAS[1] ** number)).sqrt_().add_(EPSILON)
    value.mul_(1 - rate * decay).addcdiv_(mean, spread, value=-rate / (1 - BETAS[0] ** number))

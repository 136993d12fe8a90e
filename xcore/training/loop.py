"""The one training loop for torch models: batches by counter, step, checkpoint, learning curve, early stop, averaging.

A model family supplies a `Problem`: a module, sparsely updated tables, a loss and a metric on dev rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from xcore.numeric.matrices import Int64
from xcore.numeric.parallel import over_blocks
from xcore.training.checkpoints import Checkpoints
from xcore.training.context import FitContext
from xcore.training.optimiser import Moments
from xcore.training.schedule import Schedule
from xcore.training.shards import Lookup, batch_gradients, single_threaded_torch

REPORTS_AN_EPOCH = 20


class Problem(Protocol):
    """What is trained."""

    @property
    def module(self) -> torch.nn.Module: ...

    @property
    def tables(self) -> Mapping[str, torch.Tensor]: ...

    def loss(self, examples: Int64, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        """The sum of the losses of some examples; all that is random comes from the generator."""
        ...

    def evaluate(self) -> dict[str, float]:
        """Metrics of the dev rows with the present weights; empty where there are no dev rows."""
        ...


@runtime_checkable
class Preparing(Protocol):
    """A problem that looks at the whole batch before it is cut into shards, and may keep something between steps."""

    def prepare(self, examples: Int64, step: int) -> None:
        """Get ready for the losses of a step; all that is random follows from the number of the step."""
        ...

    def arrays(self) -> Mapping[str, Any]:
        """What it keeps between steps, for a checkpoint."""
        ...

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Go back to where `arrays` was taken."""
        ...


def train(problem: Problem, schedule: Schedule, context: FitContext, checkpoints: Checkpoints) -> None:
    """Run all epochs, or what a checkpoint left of them; the problem's weights end as the best, or the average.

    Weights are chosen by dev rows only. Without dev rows every epoch is run and the last weights, or the average of
    the last epochs, stay. The same bits come out for any number of threads, killed and resumed or not.
    """
    state = State(problem)
    kept = checkpoints.read()
    if kept is not None:
        state.restore(kept)
    pause = max(1, schedule.steps_per_epoch // REPORTS_AN_EPOCH)
    with single_threaded_torch():
        if schedule.judges_start and state.step == 0:
            metrics = problem.evaluate()
            state.judge(-1, metrics.get(schedule.select))
            context.report(0, schedule.total, metrics)
        while state.step < schedule.total and not state.is_over(schedule.patience):
            epoch, first = divmod(state.step, schedule.steps_per_epoch)
            order = schedule.order(epoch)
            for number in range(first, schedule.steps_per_epoch):
                state.advance(problem, schedule, schedule.examples(order, number))
                if number + 1 < schedule.steps_per_epoch:
                    if checkpoints.is_due():
                        checkpoints.write(state.arrays())
                    if (number + 1) % pause == 0:
                        context.report(state.step, schedule.total)
            if schedule.is_averaged(epoch):
                state.average()
            metrics = {"loss": state.loss / schedule.n_examples} | state.measured(problem)
            state.judge(epoch, metrics.get(schedule.select))
            if checkpoints.is_due() or epoch + 1 == schedule.epochs:
                checkpoints.write(state.arrays())
            context.report(state.step, schedule.total, metrics)
        state.finish()
    context.report(schedule.total, schedule.total)


class State:
    """All that changes in training; this is what a checkpoint holds.

    Attributes
    ----------
    step : int
        Steps done.
    loss : float
        Sum of the losses of this epoch's examples so far.
    """

    def __init__(self, problem: Problem) -> None:
        self.parameters = {name: Moments.of(value.detach()) for name, value in problem.module.named_parameters()}
        self.tables = {name: Moments.of(value) for name, value in problem.tables.items()}
        self.averaged: dict[str, torch.Tensor] = {}
        self.best: dict[str, torch.Tensor] = {}
        self.step, self.loss = 0, 0.0
        self.n_averaged = 0
        self.best_score, self.best_epoch, self.last_epoch = -np.inf, -1, -1
        self.preparing = problem if isinstance(problem, Preparing) else None

    def advance(self, problem: Problem, schedule: Schedule, examples: Int64) -> None:
        """One step on a batch."""
        if self.preparing is not None:
            self.preparing.prepare(examples, self.step)
        values = list(problem.module.parameters())
        key = (schedule.seed, self.step)
        found = batch_gradients(problem.loss, examples, values, problem.tables, key)
        rate, decay = schedule.rate(self.step), schedule.weight_decay
        self.loss += found.loss
        self.step += 1
        moments = list(self.parameters.values())

        def update(place: int) -> None:
            moments[place].step(found.whole[place], rate, decay, self.step)

        with torch.no_grad():
            over_blocks(update, range(len(moments)))
            for name, (rows, gradient) in found.rows.items():
                self.tables[name].step_rows(torch.from_numpy(rows), gradient, rate, decay, self.step)

    def values(self) -> dict[str, torch.Tensor]:
        """The weights, by name."""
        return {name: own.value for name, own in (*self.parameters.items(), *self.tables.items())}

    def average(self) -> None:
        """Take the present weights into the running average."""
        self.n_averaged += 1
        for name, value in self.values().items():
            mean = self.averaged.setdefault(name, torch.zeros_like(value))
            mean += (value - mean) / self.n_averaged

    def measured(self, problem: Problem) -> dict[str, float]:
        """Metrics of the weights that would be kept now: the average, where there is one."""
        before = {name: value.clone() for name, value in self.values().items()} if self.averaged else {}
        self._put(self.averaged)
        metrics = problem.evaluate()
        self._put(before)
        return metrics

    def judge(self, epoch: int, score: float | None) -> None:
        """Close an epoch, and keep its weights if the dev rows have not seen better."""
        self.loss, self.last_epoch = 0.0, epoch
        if score is not None and score > self.best_score:
            self.best_score, self.best_epoch = score, epoch
            kept = self.averaged or self.values()
            self.best = {name: value.clone() for name, value in kept.items()}

    def is_over(self, patience: int) -> bool:
        """Whether the dev rows have asked to stop."""
        return patience > 0 and bool(self.best) and self.last_epoch - self.best_epoch >= patience

    def finish(self) -> None:
        """Put the weights in place that training ends with."""
        self._put(self.best or self.averaged)

    def _put(self, weights: Mapping[str, torch.Tensor]) -> None:
        values = self.values()
        for name, value in weights.items():
            values[name].copy_(value)

    def arrays(self) -> dict[str, Any]:
        """All of it, for a checkpoint."""
        numbers = (self.step, self.loss, self.n_averaged, self.best_score, self.best_epoch, self.last_epoch)
        found = {"numbers": np.array(numbers, np.float64)}
        if self.preparing is not None:
            found |= {f"kept/{name}": array for name, array in self.preparing.arrays().items()}
        for group, kept in {"averaged": self.averaged, "best": self.best}.items():
            found |= {f"{group}/{name}": value.cpu().numpy() for name, value in kept.items()}
        for name, own in (*self.parameters.items(), *self.tables.items()):
            for part in ("value", "mean", "square"):
                found[f"{part}/{name}"] = getattr(own, part).cpu().numpy()
        return found

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Go back to where `arrays` was taken."""
        step, self.loss, averaged, self.best_score, best_epoch, last_epoch = arrays["numbers"].tolist()
        self.step, self.n_averaged = int(step), int(averaged)
        self.best_epoch, self.last_epoch = int(best_epoch), int(last_epoch)
        for name, own in (*self.parameters.items(), *self.tables.items()):
            for part in ("value", "mean", "square"):
                getattr(own, part).copy_(torch.from_numpy(arrays[f"{part}/{name}"]))
        if self.preparing is not None:
            kept = {key: array for key, array in arrays.items() if key.startswith("kept/")}
            self.preparing.restore({key.removeprefix("kept/"): array for key, array in kept.items()})
        device = next(iter(self.values().values())).device
        for group, kept in (("averaged", self.averaged), ("best", self.best)):
            for key, array in arrays.items():
                if key.startswith(f"{group}/"):
                    kept[key.removeprefix(f"{group}/")] = torch.from_numpy(array).to(device)

"""The torch loop: gradients, resuming, early stop, averaging, rows that were touched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numba
import numpy as np
import pytest
import torch

from xcore.numeric.matrices import Int64
from xcore.training import checkpoints
from xcore.training.checkpoints import Checkpoints
from xcore.training.context import FitContext
from xcore.training.loop import train
from xcore.training.optimiser import Moments
from xcore.training.schedule import Schedule
from xcore.training.shards import Lookup, batch_gradients

N, D, VOCABULARY = 200, 6, 30


class Regression:
    """Rows of two looked-up words each, a linear layer, and dropout, against targets that follow from the words."""

    def __init__(self, scores: list[float] | None = None) -> None:
        rng = np.random.default_rng(0)
        self.words = rng.integers(0, VOCABULARY // 2, (N, 2))  # the second half of the table is never touched
        self.y = torch.from_numpy(np.float32(self.words.sum(axis=1) % 5))
        generator = torch.Generator().manual_seed(0)
        self.module = torch.nn.Linear(D, 1)
        with torch.no_grad():
            self.module.weight.copy_(torch.randn((1, D), generator=generator))
            self.module.bias.zero_()
        self.tables: Mapping[str, torch.Tensor] = {"words": torch.randn((VOCABULARY, D), generator=generator)}
        self.scores, self.seen = scores, 0

    def loss(self, examples: Int64, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        used, places = np.unique(self.words[examples], return_inverse=True)
        rows = lookup("words", used)[torch.from_numpy(places.reshape(-1, 2))].sum(dim=1)
        kept = torch.empty_like(rows).bernoulli_(0.9, generator=generator)
        return ((self.module(rows * kept)[:, 0] - self.y[torch.from_numpy(examples)]) ** 2).sum()

    def evaluate(self) -> dict[str, float]:
        if self.scores is None:
            return {}
        self.seen += 1
        return {"dev": self.scores[self.seen - 1]}

    def weights(self) -> dict[str, np.ndarray]:
        named = dict(self.module.named_parameters()) | dict(self.tables)
        return {name: value.detach().numpy().copy() for name, value in named.items()}


def schedule(**changed: object) -> Schedule:
    options = {"n_examples": N, "epochs": 4, "batch_size": 50, "learning_rate": 0.05, "weight_decay": 0.01, "seed": 3}
    return Schedule(**(options | {"select": "dev"} | changed))


def trained(
    problem: Regression, course: Schedule, context: FitContext | None = None, folder: Path | None = None
) -> dict:
    train(problem, course, context or FitContext(), Checkpoints(folder, "a training"))
    return problem.weights()


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


def test_gradients_of_shards_add_up_to_that_of_the_batch() -> None:
    problem, examples = Regression(), np.arange(40)

    def without_dropout(own: Int64, lookup: Lookup, generator: torch.Generator) -> torch.Tensor:
        used, places = np.unique(problem.words[own], return_inverse=True)
        rows = lookup("words", used)[torch.from_numpy(places.reshape(-1, 2))].sum(dim=1)
        return ((problem.module(rows)[:, 0] - problem.y[torch.from_numpy(own)]) ** 2).sum()

    found = batch_gradients(without_dropout, examples, list(problem.module.parameters()), problem.tables, (0, 0))
    table = problem.tables["words"].clone().requires_grad_()
    rows = table[torch.from_numpy(problem.words[examples])].sum(dim=1)
    loss = ((problem.module(rows)[:, 0] - problem.y[:40]) ** 2).sum()
    expected = torch.autograd.grad(loss / 40, [*problem.module.parameters(), table])
    assert found.loss == pytest.approx(float(loss.detach()), rel=1e-6)
    for own, wanted in zip(found.whole, expected, strict=False):
        torch.testing.assert_close(own, wanted)
    touched, gradient = found.rows["words"]
    torch.testing.assert_close(gradient, expected[-1][touched])
    assert set(touched.tolist()) == set(problem.words[examples].ravel().tolist())


def test_training_lowers_the_loss_and_leaves_untouched_rows_alone() -> None:
    losses: list[float] = []

    def report(step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        losses.extend([metrics["loss"]] if metrics else [])

    before = Regression().weights()["words"]
    after = trained(Regression(), schedule(epochs=20), FitContext(report=report))["words"]
    assert losses[-1] < losses[0] / 2
    assert np.array_equal(before[VOCABULARY // 2 :], after[VOCABULARY // 2 :])
    assert not np.array_equal(before[: VOCABULARY // 2], after[: VOCABULARY // 2])


@pytest.mark.parametrize("n_threads", [1, 2])
def test_bits_depend_neither_on_numbas_threads_nor_on_torchs(n_threads: int) -> None:
    expected = trained(Regression(), schedule())
    before = numba.get_num_threads(), torch.get_num_threads()
    try:
        numba.set_num_threads(min(n_threads, numba.config.NUMBA_NUM_THREADS))
        torch.set_num_threads(3 - n_threads)
        assert same(trained(Regression(), schedule()), expected)
        assert torch.get_num_threads() == 3 - n_threads, "the caller's setting is put back"
    finally:
        numba.set_num_threads(before[0])
        torch.set_num_threads(before[1])


class Killed(Exception):
    """Stands for a signal."""


@pytest.mark.parametrize("last_step", [3, 20, 41, 60])
def test_a_killed_training_resumes_to_the_same_bits(
    last_step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SHARE", np.inf)
    course = schedule(average_from=0.5, batch_size=10)

    def killing(step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        if step >= last_step:
            raise Killed

    with pytest.raises(Killed):
        trained(Regression(), course, FitContext(report=killing), tmp_path)
    assert same(trained(Regression(), course, folder=tmp_path), trained(Regression(), course))


def test_the_weights_of_the_best_epoch_on_dev_rows_are_kept_and_training_stops_after_them() -> None:
    best_first = Regression([0.9, 0.5, 0.6, 0.7, 0.8, 0.8])
    stopped = trained(best_first, schedule(epochs=6, patience=2))
    assert best_first.seen == 3, "two epochs without a better score"
    kept = Regression([0.9, 0.5, 0.6, 0.7, 0.8, 0.8])
    assert same(trained(kept, schedule(epochs=6)), stopped)
    assert kept.seen == 6, "without patience all epochs are run"
    assert not same(trained(Regression(), schedule(epochs=6)), stopped)


def test_a_training_that_goes_on_from_another_ends_no_worse_on_dev_rows_than_it_started() -> None:
    before = Regression().weights()
    kept = trained(Regression([0.5, 0.4, 0.3, 0.2, 0.1]), schedule(judges_start=True))
    assert same(kept, before)
    stopped = Regression([0.5, 0.4, 0.3, 0.2, 0.1])
    assert same(trained(stopped, schedule(judges_start=True, patience=2)), before)
    assert stopped.seen == 3
    better = trained(Regression([0.5, 0.4, 0.6, 0.2, 0.1]), schedule(judges_start=True))
    assert same(better, trained(Regression([0.4, 0.6, 0.2, 0.1]), schedule()))


def test_without_dev_rows_nothing_stops_a_training() -> None:
    steps: list[int] = []
    trained(Regression(), schedule(patience=1), FitContext(report=lambda step, total, metrics=None: steps.append(step)))
    assert steps[-1] == schedule().total


def test_weights_are_averaged_over_the_last_epochs() -> None:
    ends = []

    class Noting(Regression):
        def evaluate(self) -> dict[str, float]:
            ends.append(self.weights())
            return {}

    trained(Noting(), schedule())
    average = trained(Regression(), schedule(average_from=0.5))
    for name, value in average.items():
        np.testing.assert_allclose(value, (ends[2][name] + ends[3][name]) / 2, rtol=1e-5, atol=1e-6)


def test_a_step_is_that_of_torchs_adamw() -> None:
    ours, theirs = torch.randn((3, 4)), torch.nn.Parameter(torch.empty((3, 4)))
    theirs.data.copy_(ours)
    moments, optimiser = Moments.of(ours), torch.optim.AdamW([theirs], lr=0.01, weight_decay=0.1)
    for number in range(1, 6):
        gradient = torch.randn((3, 4))
        moments.step(gradient, 0.01, 0.1, number)
        theirs.grad = gradient
        optimiser.step()
    torch.testing.assert_close(ours, theirs.data)


def test_small_data_take_smaller_batches_and_the_rate_rises_and_falls() -> None:
    assert schedule(n_examples=40).batch == 4
    assert schedule(n_examples=3).batch == 1
    course = schedule(n_examples=10_000, epochs=1)
    rates = [course.rate(step) for step in range(course.total)]
    assert max(rates) == pytest.approx(0.05, rel=0.01)
    assert rates[0] < rates[5] < rates[9]
    assert rates[20] > rates[100] > rates[-1] > 0
    seen = np.concatenate([course.examples(course.order(0), number) for number in range(course.steps_per_epoch)])
    assert np.array_equal(np.sort(seen), np.arange(10_000))

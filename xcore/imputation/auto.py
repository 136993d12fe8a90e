"""Choose the imputer from the data alone: the one that best explains held-out groups."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
from pydantic import Field

from xcore.components import Report, label_of, silent
from xcore.grouping.groups import Groups
from xcore.imputation.base import Imputer
from xcore.imputation.baseline import Baseline
from xcore.imputation.disaggregate import Disaggregate
from xcore.imputation.eagle import Eagle
from xcore.imputation.heldout import ESTIMATE, Explained, HeldOutGroups, Solver, is_too_high
from xcore.imputation.imputed import Imputed
from xcore.numeric.matrices import CSR, binary_csr, normalise_rows
from xcore.training.data import Reading

log = logging.getLogger(__name__)

_MOST_BASELINE_POSITIVES = 50_000_000
SIMILAR = 0.05  # of the way from the cosine of any two rows to 1
SMALL_ERROR = 0.001  # of a precision: settings that differ by less need no remark


class Auto(Imputer):
    """Try each imputer and its main settings on some of the groups, and use the one that best explains the others.

    The measure is the precision at 1 that `HeldOutGroups` estimates for the model of the pipeline, trained on the
    imputed labels of the other groups (from Python: a ridge regression). Each part of the groups is held out once.
    `disaggregate` is used unless another is better by more than two standard errors of the difference. Where no group
    has more than one member there is nothing to choose, and the baseline is used. Trials are made on a random part of
    the groups, so that choosing costs a bounded number of rows for each candidate, whatever the size of the data.
    """

    kind: Literal["auto"] = "auto"
    share: float = Field(
        1 / 3,
        gt=0,
        le=0.5,
        description="Share of the groups that is held out at a time to compare the imputers. A smaller share means "
        "more and longer trials.",
    )
    most_rows: int = Field(
        5000,
        ge=1,
        description="Maximum number of rows in the groups that are held out at a time. More rows make the comparison "
        "more precise and slower.",
    )
    trial_rows: int = Field(
        15_000,
        ge=1,
        description="Maximum number of rows that each trial learns from. More rows make the trials slower.",
    )

    def impute_for(
        self, solver: Solver | None, X: CSR, groups: Groups, rng: np.random.Generator, report: Report = silent
    ) -> Imputed:
        """Like `impute`, judged by the model that will learn from the labels."""
        return self._checked(X, groups, lambda unknown: self._chosen(X, unknown, solver, rng, report))

    def _impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed:
        return self._chosen(X, groups, None, rng, report)

    def _chosen(
        self, X: CSR, groups: Groups, solver: Solver | None, rng: np.random.Generator, report: Report
    ) -> Imputed:
        seed = int(rng.integers(2**63))
        candidates = self._candidates(groups)
        if len(candidates) == 1:
            only = candidates[0].impute(X, groups, rng, report)
            return replace(only, details={"reason": "no group has more than one member: nothing to choose"})
        trial_X, trial_groups = _part(X, groups, np.random.default_rng(seed), self.trial_rows)
        folds = [self._fold(fold, trial_X, trial_groups, seed, solver) for fold in range(int(1 / self.share + 1e-9))]
        trials: list[Trial] = []
        for step, candidate in enumerate(candidates):
            trials += _joined([fold.explained_each(candidate, np.random.default_rng(seed)) for fold in folds])
            report(step + 1, len(candidates) + 1, trials[-1].explained.quality())
        standing = default_of(trials, solver)
        best = choose(trials, standing)
        doubts = _doubts(trials, best, trial_X, trial_groups)
        reason = _reason(trials, best, standing, solver is not None)
        log.info(reason)
        for doubt in doubts:
            log.warning(doubt)
        chosen = best.imputer.impute(X, groups, np.random.default_rng(seed), silent)
        report(len(candidates) + 1, len(candidates) + 1)
        details = {"reason": reason, "doubts": doubts, "trials": [trial.told(best) for trial in trials]}
        return Imputed(chosen.Y, {**details, "chosen": chosen.details}, best.reading)

    def _fold(self, fold: int, X: CSR, groups: Groups, seed: int, solver: Solver | None) -> HeldOutGroups:
        rng = np.random.default_rng(seed)
        return HeldOutGroups(X, groups, rng, self.share, self.most_rows, solver=solver, fold=fold)

    def _candidates(self, groups: Groups) -> list[Imputer]:
        """From the simplest to the one that is used unless another is surely better."""
        if bool((groups.sizes <= 1).all()):
            return [Baseline()]
        n_baseline = int((groups.sizes * np.diff(groups.labels.indptr)).sum())
        baseline: list[Imputer] = [Baseline()] if n_baseline <= _MOST_BASELINE_POSITIVES else []
        counted = groups.merge == "list" and bool((groups.labels.data > 1).any())
        return [*baseline, Eagle(centre=True, assign="top_m" if counted else "one"), Disaggregate(assign="auto")]


@dataclass(frozen=True)
class Trial:
    """An imputer, how the solver read its confidences, and what held-out groups say."""

    imputer: Imputer
    reading: Reading
    explained: Explained

    def told(self, best: Trial) -> dict[str, Any]:
        """For the report: the quality, and the lead over the chosen one with its standard error."""
        lead, error = self.explained.lead(best.explained)
        options = {"imputer": self.imputer.options(), "confidence": self.reading}
        return {**options, **self.explained.quality(), "lead": lead, "standard_error": error}


def _joined(found: list[list[tuple[Imputer, Reading, Explained]]]) -> list[Trial]:
    """The trials of all folds together; settings that some fold could not try are left out."""
    parts: dict[tuple[Imputer, Reading], list[Explained]] = {}
    for imputer, reading, explained in chain.from_iterable(found):
        parts.setdefault((imputer, reading), []).append(explained)
    return [
        Trial(imputer, reading, Explained.joined(some))
        for (imputer, reading), some in parts.items()
        if len(some) == len(found)
    ]


def default_of(trials: list[Trial], solver: Solver | None) -> Trial:
    """What is used unless another is surely better: the last imputer; for models that take all confidences as targets,
    `disaggregate` with soft chances, because these are the targets with the right mean."""
    last = next(trial for trial in trials if trial.imputer == trials[-1].imputer)
    soft = [trial for trial in trials if trial.imputer == Disaggregate(assign="soft")]
    return soft[0] if soft and solver is not None and not solver.two_readings else last


def choose(trials: list[Trial], standing: Trial) -> Trial:
    """The best trial, if it is surely better than the standing one; else that one."""
    best = max(trials, key=lambda trial: trial.explained.right.sum())
    return best if best.explained.surely_better(standing.explained) else standing


def _doubts(trials: list[Trial], best: Trial, X: CSR, groups: Groups) -> list[str]:
    """Sentences that say where the data cannot tell which imputer is better."""
    found = []
    for trial in trials:
        lead, error = best.explained.lead(trial.explained)
        if trial is not best and abs(lead) < 2 * error and error > SMALL_ERROR:
            found.append(f"{_name(trial)} may be as good: its precision at 1 differs by {-lead:+.3f} +- {error:.3f}")
    if groups.merge == "set" and has_similar_members(X, groups):
        found.append(
            "groups hold similar rows, and only the sets of their labels are known: such data hardly tell which member "
            "carries a label, or how many do. Give counts, labels of some rows, or groups of dissimilar rows if you can"
        )
    return found


def has_similar_members(X: CSR, groups: Groups) -> bool:
    """Whether two members of a group are clearly more alike than two rows of different groups, by their cosines."""
    rows = normalise_rows(X)
    sizes = groups.sizes[groups.sizes > 1].astype(np.float64)
    if not len(sizes):
        return False
    sums = groups.members[np.flatnonzero(groups.sizes > 1)] @ rows
    squares = np.asarray(sums.multiply(sums).sum(axis=1), np.float64).reshape(-1)
    within = float((squares - sizes).sum() / (sizes * (sizes - 1)).sum())
    total, n = np.asarray(sums.sum(axis=0), np.float64), float(sizes.sum())
    between = float((total @ total - squares.sum()) / max(n**2 - np.square(sizes).sum(), 1))
    return within > between + SIMILAR * (1 - between)


def _part(X: CSR, groups: Groups, rng: np.random.Generator, most_rows: int) -> tuple[CSR, Groups]:
    """A random part of the groups, of about `most_rows` members, and the rows in them; at least two groups."""
    order = rng.permutation(np.flatnonzero(groups.sizes > 0))
    fits = np.cumsum(groups.sizes[order]) <= most_rows
    fits[:2] = True
    if fits.all():
        return X, groups
    part = groups.take(np.sort(order[fits]))
    rows = np.unique(part.members.indices)
    members = binary_csr(np.searchsorted(rows, part.members.indices), part.members.indptr, len(rows))
    return X[rows], Groups(members, part.labels, part.merge)


def _name(trial: Trial) -> str:
    return f"{label_of(trial.imputer)} ({trial.reading})"


def _reason(trials: list[Trial], best: Trial, standing: Trial, has_solver: bool) -> str:
    """One sentence: what was chosen, by which measure, against what."""
    ranked = sorted(trials, key=lambda trial: -trial.explained.right.sum())
    scores = "; ".join(f"{_name(one)} {one.explained.quality()[ESTIMATE]:.3f}" for one in ranked)
    judge = "the model of this run" if has_solver else "a ridge regression"
    too_high = is_too_high(ranked[0].explained.quality())
    alike = "; those above 1 only rank, since groups hold similar rows" if too_high else ""
    return (
        f"chose {_name(best)} of {len(trials)} trials by the precision at 1 of {judge} that held-out groups let us "
        f"estimate ({scores}{alike}); {_name(standing)} is kept unless another leads by two standard errors"
    )

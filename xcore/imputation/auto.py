"""Choose the imputer from the data alone: the one that best explains held-out groups."""

from __future__ import annotations

import logging
from typing import Literal

import numpy as np
from pydantic import Field

from xcore.components import Report, label_of, silent
from xcore.grouping.groups import Groups
from xcore.imputation.base import Imputer
from xcore.imputation.baseline import Baseline
from xcore.imputation.disaggregate import Disaggregate
from xcore.imputation.eagle import Eagle
from xcore.imputation.heldout import Explained, HeldOutGroups
from xcore.imputation.imputed import Imputed
from xcore.numeric.matrices import CSR, binary_csr

log = logging.getLogger(__name__)

_MOST_BASELINE_POSITIVES = 50_000_000


class Auto(Imputer):
    """Try each imputer and its main settings on some of the groups, and use the one that best explains the others.

    The measure is `HeldOutGroups`. Few groups make it noisy: `disaggregate`, which won wherever we could look at the
    truth, is used unless another is better by more than two standard errors of the difference. Where no group has more
    than one member there is nothing to choose, and the baseline is used. Trials are made on a random part of the
    groups, so that choosing costs a bounded number of rows for each candidate, whatever the size of the data.
    """

    kind: Literal["auto"] = "auto"
    share: float = Field(0.1, gt=0, le=0.5, description="Share of the groups that is held out to compare the imputers.")
    most_rows: int = Field(
        2000,
        ge=1,
        description="Maximum number of rows in the held-out groups. More rows make the comparison more precise "
        "and slower.",
    )
    trial_rows: int = Field(
        15_000,
        ge=1,
        description="Maximum number of rows that each trial learns from. More rows make the trials slower.",
    )

    def _impute(self, X: CSR, groups: Groups, rng: np.random.Generator, report: Report) -> Imputed:
        seed = int(rng.integers(2**63))
        candidates = self._candidates(groups)
        if len(candidates) == 1:
            only = candidates[0].impute(X, groups, rng, report)
            return Imputed(only.Y, {"reason": "no group has more than one member: nothing to choose"})
        trial_X, trial_groups = _part(X, groups, np.random.default_rng(seed), self.trial_rows)
        held_out = HeldOutGroups(trial_X, trial_groups, np.random.default_rng(seed), self.share, self.most_rows)
        found = []
        for step, candidate in enumerate(candidates):
            found.append(held_out.explained(candidate, np.random.default_rng(seed)))
            report(step + 1, len(candidates) + 1, found[-1].quality())
        qualities = [explained.quality() for explained in found]
        best = _choice(found)
        reason = _reason(candidates, [quality["group_agreement"] for quality in qualities], best)
        log.info(reason)
        chosen = candidates[best].impute(X, groups, np.random.default_rng(seed), silent)
        report(len(candidates) + 1, len(candidates) + 1)
        trials = [{"imputer": tried.options(), **quality} for tried, quality in zip(candidates, qualities, strict=True)]
        return Imputed(chosen.Y, {"reason": reason, "trials": trials, "chosen": chosen.details})

    def _candidates(self, groups: Groups) -> list[Imputer]:
        """From the simplest to the one that is used unless another is surely better."""
        if bool((groups.sizes <= 1).all()):
            return [Baseline()]
        n_baseline = int((groups.sizes * np.diff(groups.labels.indptr)).sum())
        baseline: list[Imputer] = [Baseline()] if n_baseline <= _MOST_BASELINE_POSITIVES else []
        counted = groups.merge == "list" and bool((groups.labels.data > 1).any())
        best_assignment: Literal["one", "top_m"] = "top_m" if counted else "one"
        return [
            *baseline,
            Eagle(iterations=0),
            Eagle(),
            Eagle(iterations=0, centre=True, assign=best_assignment),
            Eagle(centre=True, assign=best_assignment),
            Disaggregate(penalty=10),
            Disaggregate(),
        ]


def _choice(found: list[Explained]) -> int:
    """The best of those that are surely better than the last, or else the last."""
    better = [place for place, explained in enumerate(found) if explained.surely_better(found[-1])]
    return max(better, key=lambda place: found[place].beyond_chance.sum(), default=len(found) - 1)


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


def _reason(candidates: list[Imputer], agreements: list[float], best: int) -> str:
    """One sentence: what was chosen, by which measure, against what."""
    ranked = sorted(zip(agreements, candidates, strict=True), key=lambda trial: -trial[0])
    scores = "; ".join(f"{label_of(candidate)} {agreement:.3f}" for agreement, candidate in ranked)
    return (
        f"chose {label_of(candidates[best])} of {len(candidates)} imputers by the share of the label counts of "
        f"held-out groups that a ridge regression on its labels reproduces ({scores}); {label_of(candidates[-1])} "
        "stands unless another is better by two standard errors"
    )

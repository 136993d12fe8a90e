"""Facts about single members from the labels of groups alone: pool two groups, and their own labels say who was right.

An imputer that sees only the pooled labels of two groups must find out which of the two each label came from. The
answer is known. So its chances can be checked on groups that took part in the fit as all others do, which held-out
groups cannot tell: a group that takes part has a hand in the scores of all others, and those in its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from xcore.grouping.groups import Groups
from xcore.imputation.posterior import given_count, likelihood_of_some
from xcore.imputation.ridge import LeftOut, Rest, left_out
from xcore.imputation.sharpness import Judged
from xcore.numeric.matrices import CSR, Float32, Float64, Int64, csr


class Pooled(NamedTuple):
    """Groups of which some have been pooled in pairs, and the groups that those were.

    Attributes
    ----------
    groups : the groups that stayed as they are, then the pooled ones.
    stayed : int64
        Which of the original groups stayed.
    halves : int64 (2 p,)
        The original groups of the p pooled ones, two by two.
    """

    groups: Groups
    stayed: Int64
    halves: Int64

    @property
    def places(self) -> Int64:
        """Where the pooled groups stand (p,)."""
        return np.arange(len(self.stayed), self.groups.n_groups)

    def folds(self, folds: LeftOut, rest: Rest, sketch: Float32) -> LeftOut:
        """What leaves out the groups as they are now; `folds` is the same of the original groups."""
        new = left_out(rest, sketch, self.groups.take(self.places))
        first = np.concatenate([folds.first[self.stayed], len(folds.matrices) + new.first])
        return LeftOut(first, np.concatenate([folds.matrices, new.matrices]))


def pool(groups: Groups, chosen: Int64) -> Pooled:
    """Pool the chosen groups in pairs, in the order given; they must not share rows with any group."""
    halves = chosen[: len(chosen) // 2 * 2]
    stayed = np.setdiff1d(np.arange(groups.n_groups), halves)
    pairs = csr(np.ones(len(halves)), halves, np.arange(0, len(halves) + 1, 2), groups.n_groups)
    labels = _stacked(groups.labels[stayed], pairs @ groups.labels)
    if groups.merge == "set":
        labels.data[:] = 1
    members = _stacked(groups.members[stayed], pairs @ groups.members)
    return Pooled(replace(groups, members=members, labels=labels), stayed, halves)


def _stacked(above: CSR, below: CSR) -> CSR:
    both = sp.vstack([above, below]).tocsr()
    both.sort_indices()
    return csr(both.data, both.indices, both.indptr, above.shape[1])


class Halves(NamedTuple):
    """The halves of pooled groups, and the pooled groups, over the same members."""

    apart: Judged
    together: Judged

    def squared_error(self, sharpness: float) -> float:
        """Of what each half is expected to have, given what the two have together.

        The errors of a group's chances add up to 0. So if g members of 2 g are drawn at random, the expected square of
        their summed errors is g / (4 g - 2) of the sum of squares over all members: the squared error of halves, which
        is known, estimates that of members, which is not. This holds for odds of any shape. The exponents of highest
        likelihood of halves and of members differ where the shape is wrong.
        """
        prior = self.apart.prior(sharpness)
        errors = _errors_of_halves(self.apart, self.together, sharpness, prior)
        return float((np.square(errors) @ self.apart.weights).sum())


@numba.njit(cache=True, nogil=True)
def _errors_of_halves(apart: Judged, together: Judged, sharpness: float, prior: Float64) -> Float64:
    """Expected count (of sets, chance of any carrier) of each half, less what it has (halves, labels)."""
    errors = np.zeros(apart.counts.shape)
    for pair in range(len(together.counts)):
        first, end = together.first[pair], together.first[pair + 1]
        middle = apart.first[2 * pair + 1]
        log_odds, posterior = np.empty(end - first), np.empty(end - first)
        for k in range(len(prior)):
            if together.counts[pair, k] == 0:
                continue
            for i in range(end - first):
                log_odds[i] = prior[k] + sharpness * together.evidence[first + i, k]
            if together.known:
                given_count(log_odds, int(together.counts[pair, k]), posterior)
                errors[2 * pair, k] = np.sum(posterior[: middle - first]) - apart.counts[2 * pair, k]
                errors[2 * pair + 1, k] = -errors[2 * pair, k]
            else:
                some = likelihood_of_some(log_odds, posterior)
                one = likelihood_of_some(log_odds[: middle - first], posterior[: middle - first])
                other = likelihood_of_some(log_odds[middle - first :], posterior[middle - first :])
                errors[2 * pair, k] = min(np.exp(one - some), 1.0) - apart.counts[2 * pair, k]
                errors[2 * pair + 1, k] = min(np.exp(other - some), 1.0) - apart.counts[2 * pair + 1, k]
    return errors


def only_group(groups: Groups) -> npt.NDArray[np.bool_]:
    """Whether a group has members, none of which is in another group (m,)."""
    shared = np.bincount(groups.members.indices, minlength=groups.n_rows) > 1
    n_shared = np.bincount(
        np.repeat(np.arange(groups.n_groups), groups.sizes), shared[groups.members.indices], groups.n_groups
    )
    alone: npt.NDArray[np.bool_] = (groups.sizes > 0) & (n_shared == 0)
    return alone

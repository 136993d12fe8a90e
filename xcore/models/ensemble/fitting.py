"""Scales and weights of trained members, from dev rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from xcore.models.base import Fitted
from xcore.models.ensemble.fitted import FittedEnsemble, FittedMember
from xcore.models.ensemble.scale import Scale, common_scale
from xcore.models.ensemble.weights import choose_weights
from xcore.numeric.matrices import CSR, NO_LABEL, TopK
from xcore.text.family import AnyFittedText
from xcore.training.data import Matrix, TrainingData
from xcore.training.dev_choice import dev_sample, hits_of

if TYPE_CHECKING:
    from xcore.models.ensemble.model import Ensemble

DEV_ROWS = 3000  # at most, at even distances


def combined(
    options: Ensemble, data: TrainingData, fitted: Sequence[tuple[Fitted, AnyFittedText | None]]
) -> tuple[FittedEnsemble, dict[str, float]]:
    """The ensemble of trained members, and what is known about it."""
    copies = np.array([member.copies for member in options.members])
    equal = np.repeat(1 / (len(copies) * copies), copies)
    members = [FittedMember(*one, weight=float(weight)) for one, weight in zip(fitted, equal, strict=True)]
    metrics: dict[str, float] = {}
    rows = dev_sample(data.dev, DEV_ROWS)
    if rows is not None:
        members, metrics = _weighted(members, copies.tolist(), *rows, options.candidates)
    return FittedEnsemble(options.form_for([data.form]), options.candidates, tuple(members)), metrics


def _weighted(
    members: Sequence[FittedMember], copies: list[int], X: Matrix, truth: CSR, candidates: int
) -> tuple[list[FittedMember], dict[str, float]]:
    """The members with scales and weights of their own."""
    tops = [member.predict_topk(X, candidates) for member in members]
    scaled = [replace(member, scale=_scale(top, truth)) for member, top in zip(members, tops, strict=True)]
    scores = [common_scale(top, member.scale, candidates) for member, top in zip(scaled, tops, strict=True)]
    groups = np.split(np.arange(len(members)), np.cumsum(copies)[:-1])
    labels = [np.concatenate([tops[at].labels for at in group], axis=1) for group in groups]
    shared = [np.concatenate([scores[at] / len(group) for at in group], axis=1) for group in groups]
    weights, quality = choose_weights(labels, shared, truth)
    each = np.repeat(weights / np.array(copies), copies)
    metrics = {f"weight_{number}": float(weight) for number, weight in enumerate(weights)}
    weighted = [replace(member, weight=float(weight)) for member, weight in zip(scaled, each, strict=True)]
    return weighted, {**metrics, "dev_ndcg_at_5": quality}


def _scale(top: TopK, truth: CSR) -> Scale:
    offered = top.labels != NO_LABEL
    return Scale.fit(top.scores[offered].astype(np.float64), hits_of(top.labels, truth)[offered])

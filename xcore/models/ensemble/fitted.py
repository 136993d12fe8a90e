"""A trained ensemble: its members, their scales and weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field

from xcore.errors import ArtifactDamaged, ConfigError
from xcore.files import opened_part, save_part
from xcore.models.base import Extensible, Fitted, rows_for
from xcore.models.ensemble.scale import Scale, best_of_sum, common_scale
from xcore.models.family import load_model
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import TopK, row_blocks
from xcore.saved import Count, Described, read_json
from xcore.text.family import AnyFittedText, load_text
from xcore.training.data import LabelSide, Matrix, RowForm, n_rows_of

BLOCK_ROWS = 8192


@dataclass(frozen=True)
class FittedMember:
    """A trained model inside an ensemble.

    Attributes
    ----------
    fitted : Fitted
    text : AnyFittedText or None
        What makes its rows of texts. None: it takes the ensemble's rows.
    scale : Scale or None
        From its scores to the common scale; None: relative to the other candidates of a row.
    weight : float
        Of its scores in the sum.
    """

    fitted: Fitted
    text: AnyFittedText | None = None
    scale: Scale | None = None
    weight: float = 1.0

    def predict_topk(self, rows: Matrix, k: int) -> TopK:
        """Its own ranking of rows of the ensemble."""
        return self.fitted.predict_topk(rows if self.text is None else self._rows_of(self.text, rows), k)

    def with_labels(self, labels: LabelSide) -> FittedMember:
        """The member with more labels; itself if it cannot have them."""
        if not isinstance(self.fitted, Extensible):
            return self
        own = labels if self.text is None else LabelSide(labels.texts, self._rows_of(self.text, list(labels.texts)))
        return replace(self, fitted=self.fitted.with_labels(own))

    def _rows_of(self, text: AnyFittedText, texts: list[str]) -> Matrix:
        return text.sequences(texts) if self.fitted.form == "tokens" else text.transform(texts)


@dataclass(frozen=True)
class FittedEnsemble:
    """Models that rank together.

    Attributes
    ----------
    form : RowForm
    candidates : int
        Labels that each member offers for a row.
    members : tuple of FittedMember
    """

    form: RowForm
    candidates: int
    members: tuple[FittedMember, ...]

    @property
    def n_features(self) -> int:
        """Features of its rows; 0 for texts."""
        return 0 if self.form == "text" else self.members[0].fitted.n_features

    @property
    def n_labels(self) -> int:
        """Labels of all members; those that were added later are known to some members only."""
        return max(member.fitted.n_labels for member in self.members)

    def with_labels(self, labels: LabelSide) -> FittedEnsemble:
        """The same ensemble with more labels, which the members offer that find labels by their names."""
        if not any(isinstance(member.fitted, Extensible) for member in self.members):
            raise ConfigError(
                "no member of the ensemble can predict labels that it was not trained on: add one that can, such as "
                "memory"
            )
        return replace(self, members=tuple(member.with_labels(labels) for member in self.members))

    def predict_topk(self, X: Matrix, k: int) -> TopK:
        """The k labels of the largest weighted sums of scores on the common scale.

        A label that is not among a member's candidates has that member's lowest score there, which is 0. Cost: that of
        all members.
        """
        rows = rows_for(self, X, k)
        n_rows = n_rows_of(rows)
        top = TopK(np.empty((n_rows, k), np.int32), np.empty((n_rows, k), np.float32))
        for part in row_blocks(n_rows, BLOCK_ROWS):
            depth = max(k, self.candidates)
            found = self.combine([member.predict_topk(rows[part], depth) for member in self.members], k)
            top.labels[part], top.scores[part] = found.labels, found.scores
        return top

    def combine(self, tops: Sequence[TopK], k: int) -> TopK:
        """The answer of the ensemble, from the rankings of its members in their order."""
        scores = [
            member.weight * common_scale(top, member.scale, self.candidates)
            for member, top in zip(self.members, tops, strict=True)
        ]
        labels = np.concatenate([top.labels for top in tops], axis=1)
        return best_of_sum(labels, np.concatenate(scores, axis=1), k)

    def save(self, directory: Path) -> None:
        """Write ``model.json``, ``ensemble.safetensors``, and the files of each member with a prefix to their names."""
        arrays = {"weights": np.array([member.weight for member in self.members])}
        for number, member in enumerate(self.members):
            save_part(directory, f"member-{number}.", member.fitted.save)
            if member.text is not None:
                save_part(directory, f"member-{number}-text.", member.text.save)
            if member.scale is not None:
                arrays |= {f"scores.{number}": member.scale.scores, f"shares.{number}": member.scale.shares}
        write_arrays(directory / "ensemble.safetensors", arrays)
        about = {
            "kind": "ensemble",
            "form": self.form,
            "candidates": self.candidates,
            "n_members": len(self.members),
            "with_text": [number for number, member in enumerate(self.members) if member.text is not None],
            "has_scales": self.members[0].scale is not None,
        }
        (directory / "model.json").write_text(json.dumps(about, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        about = read_json(directory / "model.json", _About)
        members = tuple(_members(directory, about))
        n_labels = {member.fitted.n_labels for member in members}
        sizes = {member.fitted.n_features for member in members if about.form != "text"}
        forms = {member.fitted.form for member in members if member.text is None}
        allowed = {about.form, "sparse"} if about.form == "vector" else {about.form}
        if len(n_labels) > 1 or len(sizes) > 1 or not forms <= allowed:
            raise ArtifactDamaged(
                f"{directory}: the members of the ensemble have {sorted(n_labels)} labels, {sorted(sizes)} features "
                f"and rows of form {sorted(forms)}, expected one space of {about.form} rows; make the artifact again"
            )
        return cls(about.form, about.candidates, members)


class _About(Described):
    """``model.json``."""

    kind: Literal["ensemble"]
    form: RowForm
    candidates: Annotated[int, Field(ge=1, le=10_000)]
    n_members: Annotated[int, Field(ge=1, le=1000)]
    with_text: list[Count]
    has_scales: bool


def _members(directory: Path, about: _About) -> Iterator[FittedMember]:
    with ArrayFile(directory / "ensemble.safetensors") as file:
        weights = file.take("weights", np.float64, (about.n_members,)).finite().within(0, 1.000001).array
        for number in range(about.n_members):
            scale = None
            if about.has_scales:
                scores = file.take(f"scores.{number}", np.float64, (None,)).finite().ascending()
                if not len(scores.array):
                    scores.refuse("is empty", "at least one score")
                shares = file.take(f"shares.{number}", np.float64, scores.array.shape).finite().within(0, 1.000001)
                scale = Scale(scores.array, shares.array)
            with opened_part(directory, f"member-{number}.") as folder:
                fitted = load_model(folder)
            text = None
            if number in about.with_text:
                with opened_part(directory, f"member-{number}-text.") as folder:
                    text = load_text(folder)
            yield FittedMember(fitted, text, scale, float(weights[number]))

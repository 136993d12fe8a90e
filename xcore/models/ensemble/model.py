"""An ensemble: several models that rank together, by a weighted sum of their scores on a common scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, Field

from xcore.components import Component, silent
from xcore.errors import ConfigError
from xcore.models.base import Fitted, Model, NestedModel
from xcore.models.nested import AnyModelBelow
from xcore.text.family import AnyFittedText, AnyText, terms_of
from xcore.training.context import FitContext
from xcore.training.data import LabelledRows, LabelSide, Matrix, RowForm, RowsInMemory, TrainingData, Wish

if TYPE_CHECKING:
    from xcore.models.ensemble.fitted import FittedEnsemble

STEPS = 1000  # of progress per member
LEVEL = 2  # an ensemble may hold models that hold models, but no ensemble


class Member(Component):
    """A model inside an ensemble."""

    model_config = ConfigDict(defer_build=True)

    model: Annotated[Model, AnyModelBelow(LEVEL)] = Field(
        description="The model: any kind except an ensemble, with options of its own."
    )
    text: AnyText | None = Field(
        None,
        description="How text becomes the rows of this member. If any member sets it, the ensemble takes plain texts. "
        "Empty: as the run says.",
    )
    copies: int = Field(
        1,
        ge=1,
        le=100,
        description="Number of trainings with different seeds. They share one weight. The time grows with it.",
    )
    seed: int = Field(
        0, ge=0, description="Added to the seed of the run. Copies count on from it. 0: the same model as alone."
    )


def _first_members() -> tuple[Member, ...]:
    from xcore.models.family import MODEL_KINDS

    return Member(model=MODEL_KINDS["parabel"]()), Member(model=MODEL_KINDS["ova"]())


class Ensemble(Model):
    """Ranks labels by a weighted sum of the scores of several models.

    Notes
    -----
    - Each member is trained like a model of its own. In the pipeline it is an artifact that a plain training of the
      same model shares. The files of the ensemble hold a copy of each member.
    - Each member offers its best `candidates` labels. Their scores are brought to a common scale: the share of true
      labels among the offers of such a score, counted on dev rows (isotonic regression). A label that a member does not
      offer has the score 0 there.
    - The weights are those of the best nDCG@5 on at most 3,000 dev rows. The scales are fitted on the same rows.
    - Without dev rows all weights are equal. Each row's scores then lie between 0 for its last candidate and 1 for its
      best.
    - All members take the rows in one form. If a member has a text featuriser of its own, the ensemble takes plain
      texts. A member without one then has the features of the run.
    """

    model_config = ConfigDict(defer_build=True)

    takes: ClassVar[tuple[RowForm, ...]] = ("sparse", "vector", "tokens", "text", "image")
    wants: ClassVar[frozenset[Wish]] = frozenset({"dev"})
    nesting: ClassVar[int] = LEVEL

    kind: Literal["ensemble"] = "ensemble"
    members: tuple[Member, ...] = Field(
        default_factory=_first_members,
        min_length=1,
        description="The models, each with its options. Without a choice: parabel and ova.",
    )
    candidates: int = Field(
        100,
        ge=1,
        le=10_000,
        description="Number of labels that each member offers per row. More take more time and may find more.",
    )

    def nested_models(self) -> Mapping[str, NestedModel]:
        """Role > member, one for each copy."""
        copies = [(member, member.seed + copy) for member in self.members for copy in range(member.copies)]
        return {
            f"member-{number}": NestedModel(member.model, seed, member.text)
            for number, (member, seed) in enumerate(copies)
        }

    @property
    def two_readings(self) -> bool:
        return any(member.model.two_readings for member in self.members)

    def nested_depth(self, k: int) -> int:
        """Every member offers its candidates, or more if more are asked for."""
        return max(k, self.candidates)

    def form_for(self, available: Sequence[RowForm]) -> RowForm:
        """The one form that all members take; texts if a member has a text featuriser of its own."""
        if any(member.text for member in self.members):
            if "text" not in available:
                raise ConfigError(
                    f"kind: ensemble: a member has a text featuriser of its own, but the rows are "
                    f"{' or '.join(available)}: leave members.text empty, or take a dataset of texts"
                )
            return "text"
        forms: dict[str, RowForm] = {member.model.options()["kind"]: member.model.form_for(available)
                                     for member in self.members}  # fmt: skip
        found = set(forms.values())
        if len(found) == 1:
            return found.pop()
        if found == {"sparse", "vector"} and "vector" in available:
            return "vector"
        taken = ", ".join(f"{kind} takes {form} rows" for kind, form in forms.items())
        raise ConfigError(
            f"kind: ensemble: {taken}, expected one form for all members: set text in a member, so that each member "
            "makes its rows from texts"
        )

    def _fit(self, data: TrainingData, context: FitContext) -> FittedEnsemble:
        from xcore.models.ensemble.fitting import combined

        members = list(_fitted_members(self, data, context))
        ensemble, metrics = combined(self, data, members)
        total = STEPS * len(members)
        context.report(total, total, metrics)
        return ensemble

    @classmethod
    def load(cls, directory: Path) -> FittedEnsemble:
        """Open a model that `FittedEnsemble.save` wrote."""
        from xcore.models.ensemble.fitted import FittedEnsemble

        return FittedEnsemble.load(directory)


def _fitted_members(
    options: Ensemble, data: TrainingData, context: FitContext
) -> Iterator[tuple[Fitted, AnyFittedText | None]]:
    """The members that were trained before, or else are trained now, with the featurisers of their texts."""
    nested = options.nested_models()
    seed = int(context.rng.integers(2**63))
    for number, (role, member) in enumerate(nested.items()):
        if role in data.stages:
            prepared = data.stages.get(f"{role}-text")
            yield data.stage(role).fitted, prepared.fitted if prepared else None
            continue
        rng = np.random.default_rng([seed, number])
        scratch = context.scratch / role if context.scratch else None
        report = _Share(context, number * STEPS, STEPS * len(nested))
        own, text = _rows_of(member, data)
        yield member.model.fit(own, replace(context, rng=rng, scratch=scratch, report=report)), text


def _rows_of(member: NestedModel, data: TrainingData) -> tuple[TrainingData, AnyFittedText | None]:
    """The data as a member sees it: with texts as its own featuriser makes them."""
    if member.text is None:
        return data, None
    text: AnyFittedText = member.text.fit(data.rows.blocks(), silent)
    form = member.model.form_for([member.text.makes, "tokens", "text"])
    made: RowForm = form if form in ("tokens", "text") else member.text.makes

    def encoded(texts: list[str]) -> Matrix:
        return text.sequences(texts) if form == "tokens" else text.transform(texts)

    def rows(texts: list[str]) -> RowsInMemory:
        return RowsInMemory(texts if form == "text" else encoded(texts), made)

    dev = LabelledRows(rows(data.dev.X), data.dev.Y, data.dev.bags) if data.dev else None
    labels = data.labels
    if labels is not None:
        terms = terms_of(text, form)
        labels = LabelSide(labels.texts, encoded(list(labels.texts)), is_named=labels.is_named, terms=terms)
    return replace(data, rows=rows(data.X), dev=dev, labels=labels, stages={}), text


@dataclass(frozen=True)
class _Share:
    """Progress of one member as a part of the whole; the last step is left to the ensemble."""

    context: FitContext
    start: int
    total: int

    def __call__(self, step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        self.context.report(min(self.start + STEPS * step // total, self.total - 1), self.total, metrics)

"""Fine-tuning of a transformer: a stage before Module I that maps texts to vectors. No torch in here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from xcore.text.transformer import FittedTransformer, Transformer
from xcore.training.context import FitContext
from xcore.training.data import LabelledRows, Matrix, RowsInMemory, TrainingData, Wish
from xcore.training.stages import Stage

ROLE = "transformer"


class FineTuning(Stage):
    """A transformer whose last layers are trained so that each row is near the names of its labels.

    Notes
    -----
    - An epoch looks at each labelled row once, with one of its labels at random. In each quarter of a batch, rows
      choose their label among the names, and names choose their rows (softmax over cosines). Pairs that belong
      together by chance are no negatives. A target q weighs its pair by q.
    - The layers below stay as they are. There is no dropout, so that each text has one vector.
    - The given weights are kept if no epoch is better on dev rows.
    - A step costs O(layers (t d^2 + t^2 d)) per text of t tokens, for all layers forward and the trained ones back, for
      each row and each name of the batch.
    - Memory: 32 bytes per trained weight, and the hidden states of a batch, beside the network.
    """

    artifact: ClassVar[str] = "fine-tuned-encoder"
    learns_labels: ClassVar[bool] = True
    maps_slowly: ClassVar[bool] = True
    wants: ClassVar[frozenset[Wish]] = frozenset({"dev", "labels"})

    transformer: Transformer = Field(Transformer(), description="The encoder to start with, and how it reads texts.")
    layers: int = Field(2, ge=1, description="Number of layers that are trained, counted from the last.")
    epochs: int = Field(1, ge=1, description="Maximum number of passes over the labelled training rows.")
    batch_size: int = Field(
        256,
        ge=1,
        description="Number of rows per step. More give harder negatives and need more memory. It is reduced if an "
        "epoch would have fewer than 10 steps.",
    )
    learning_rate: float = Field(0.0001, gt=0, description="Peak learning rate of AdamW.")
    weight_decay: float = Field(0.01, ge=0, description="Decoupled weight decay of AdamW.")
    temperature: float = Field(
        0.05, gt=0, le=10, description="Cosines are divided by it in a softmax. A low one looks at the nearest only."
    )
    patience: int = Field(
        2, ge=0, description="Number of epochs without a better dev score after which training stops. 0: never."
    )

    def source_files(self) -> tuple[Path, ...]:
        """The files of the encoder to start with."""
        return self.transformer.source_files()

    def fit(self, data: TrainingData, context: FitContext) -> FittedTransformer:
        """Train the last layers."""
        from xcore.siamese.fitting.fine_tuning import fine_tune

        return fine_tune(self, data, context)

    @classmethod
    def load(cls, directory: Path) -> FittedTransformer:
        """Open what `FittedTransformer.save` wrote."""
        return FittedTransformer.load(directory)


def in_vectors(data: TrainingData, wants: Collection[Wish]) -> TrainingData:
    """The data with vectors of a fine-tuned transformer in place of texts; itself where there is no such stage.

    Training rows were encoded before. Dev rows and label names are encoded now, if they are wanted.
    """
    if ROLE not in data.stages:
        return data
    stage = data.stage(ROLE)
    text: FittedTransformer = stage.fitted

    def vectors(texts: Matrix) -> RowsInMemory:
        return RowsInMemory(text.transform(texts), "vector")

    dev = LabelledRows(vectors(data.dev.X), data.dev.Y) if data.dev and "dev" in wants else None
    labels = replace(data.labels, X=vectors(data.labels.texts).X) if data.labels and "labels" in wants else None
    return replace(data, rows=RowsInMemory(stage.X, "vector"), dev=dev, labels=labels)

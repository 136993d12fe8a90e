"""Options of the modules of SiameseXML, each a stage of its own. No torch in here."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

from pydantic import Field

from xcore.siamese.fine_tuning import in_vectors
from xcore.siamese.label_rows import NameUse
from xcore.siamese.modules import FittedClassifiers, FittedEncoder, FittedShortlists
from xcore.training.context import FitContext
from xcore.training.data import TrainingData, Wish
from xcore.training.stages import Stage

LossKind: TypeAlias = Literal["softmax", "likelihood"]


class SiameseEncoder(Stage):
    """Module I: an encoder of rows and label texts, trained so that each label is near its rows.

    Notes
    -----
    - A batch holds labels, each with one of its rows at random. The other rows of the batch are its negatives, except
      those that carry the label too. Only the nearest of them count, and one more from an index of training rows.
    - An epoch has as many draws as there are labels or labelled rows, whichever is more. The paper draws each label
      once per epoch and trains for more epochs.
    - With loss softmax, each label chooses its row among those of a quarter of the batch, and each row its label. The
      options `negatives`, `both_sides`, `refresh`, `ceiling` and `steepness` then have no use.
    - Left out of the release: its second loss against the centroid of two rows.
    - A step costs O(B D^2 + B^2 D) and does not depend on the number of rows or labels.
    """

    artifact: ClassVar[str] = "siamese-encoder"
    learns_labels: ClassVar[bool] = True
    wants: ClassVar[frozenset[Wish]] = frozenset({"dev", "labels"})

    profile: Literal["paper", "release"] = Field(
        "release",
        description="paper: ReLU, all labels equally often, both parts of the encoder are trained. release (as in the "
        "published code): GELU, frequent labels more often (count^0.45), the residual block is trained in Module III "
        "only.",
    )
    table: Literal["random", "wordllama"] = Field(
        "random",
        description="First vectors of the words or tokens. wordllama: vectors start as in that package. With text kind "
        "tfidf each word has a vector, with text kind wordllama each token. If rows are vectors, a linear map of them "
        "is trained, which starts as the identity.",
    )
    dimensions: int = Field(256, ge=1, le=4096, description="Length of the vectors of a random table.")
    label_names: NameUse = Field(
        "auto",
        description="auto: labels are encoded by their names, and labels without one by their training rows. required: "
        "fail if the dataset has no names. unused: training rows only.",
    )
    epochs: int = Field(10, ge=0, description="Maximum number of epochs. 0: the encoder stays as it starts.")
    batch_size: int = Field(
        2048,
        ge=2,
        description="Number of labels per step. More give harder negatives. It is reduced if an epoch would have "
        "fewer than 10 steps.",
    )
    learning_rate: float = Field(0.005, gt=0, description="Peak learning rate of AdamW.")
    weight_decay: float = Field(0.0, ge=0, description="Decoupled weight decay of AdamW.")
    loss: LossKind = Field(
        "softmax",
        description="softmax: cross-entropy of each positive pair against all other pairs of a quarter of the batch, "
        "ours. likelihood: the loss of the paper, over a few hard negatives.",
    )
    temperature: float = Field(
        0.05, gt=0, le=10, description="Cosines are divided by it in a softmax. A low one looks at the nearest only."
    )
    negatives: int = Field(
        3,
        ge=1,
        le=1000,
        description="Number of rows that each label is pushed away from per step (kappa), with loss likelihood.",
    )
    both_sides: bool = Field(
        True,
        description="Also push each row away from the nearest labels of the batch that it does not carry. The paper "
        "does not.",
    )
    refresh: int = Field(
        5,
        ge=0,
        description="Number of epochs after which the nearest wrong rows of each label are searched anew. One of the "
        "negatives comes from there. 0: all negatives come from the batch.",
    )
    refresh_rows: int = Field(
        65_536, ge=1, description="Maximum number of training rows that this search looks at, drawn at random."
    )
    ceiling: float = Field(0.9, gt=0, lt=1, description="c of the likelihood c exp(d (cosine - 1)).")
    steepness: float = Field(1.5, ge=1, le=100, description="d of the likelihood c exp(d (cosine - 1)).")
    patience: int = Field(
        2, ge=0, description="Number of epochs without a better dev score after which training stops. 0: never."
    )

    def fit(self, data: TrainingData, context: FitContext) -> FittedEncoder:
        """Train the encoder."""
        from xcore.siamese.fitting.encoder import fit_encoder

        return fit_encoder(self, in_vectors(data, self.wants), context)

    @classmethod
    def load(cls, directory: Path) -> FittedEncoder:
        """Open what `FittedEncoder.save` wrote."""
        return FittedEncoder.load(directory)


class Shortlists(Stage):
    """Module II: for each training row, labels that are easily confused with its own. Nothing is trained.

    Notes
    -----
    - They come from two indexes, of the labels' intermediate embeddings and of the centroids of their rows, and some
      are random. Labels without training rows are left out.
    - Cost O(N D log L) with graphs, O(N L D) with exact search. Memory: 4 bytes per row and label of a shortlist.
    """

    artifact: ClassVar[str] = "siamese-shortlists"
    learns_labels: ClassVar[bool] = True

    near: int = Field(
        40, ge=0, le=10_000, description="Labels from each of the two indexes per row. 0: no search, which saves time."
    )
    random: int = Field(20, ge=0, le=10_000, description="Labels at random per row.")
    exact_below: int = Field(
        65_536,
        ge=0,
        description="Number of labels up to which every search is exact. Above, graphs are searched, which is faster "
        "and may miss some labels. They need the extra memory.",
    )
    width: int = Field(
        800, ge=1, le=10_000, description="Candidates per search of a graph. More find more and take more time."
    )

    def fit(self, data: TrainingData, context: FitContext) -> FittedShortlists:
        """Search the shortlists of all training rows."""
        from xcore.siamese.shortlists import make_shortlists

        return make_shortlists(self, in_vectors(data, self.wants), context)

    @classmethod
    def load(cls, directory: Path) -> FittedShortlists:
        """Open what `FittedShortlists.save` wrote."""
        return FittedShortlists.load(directory)


class Classifiers(Stage):
    """Module III: a vector eta for each label that refines its embedding, w = Nrm(Enc(z) + eta). It starts at 0.

    Notes
    -----
    - The table of the encoder stays as it is, its residual block is trained. Only labels of a row and of its shortlist
      get a gradient.
    - With loss softmax, the labels of all shortlists of a quarter of the batch are the negatives of each of its rows.
      The options `ceiling`, `steepness` and `cut` then have no use. A target q weighs its positive by q.
    - A step costs O(B S (D + D^2)) at most for shortlists of S labels, whatever the number of labels.
    - Memory: eta and the two moments of Adam, 12 D bytes per label.
    """

    artifact: ClassVar[str] = "siamese-classifiers"
    learns_labels: ClassVar[bool] = True
    wants: ClassVar[frozenset[Wish]] = frozenset({"dev"})

    epochs: int = Field(5, ge=0, description="Maximum number of passes over the labelled training rows.")
    batch_size: int = Field(
        512, ge=1, description="Number of rows per step. It is reduced if an epoch would have fewer than 10 steps."
    )
    learning_rate: float = Field(0.0005, gt=0, description="Peak learning rate of AdamW.")
    weight_decay: float = Field(0.0, ge=0, description="Decoupled weight decay of AdamW. It draws eta back to 0.")
    loss: LossKind = Field(
        "softmax",
        description="softmax: cross-entropy of each positive against the shortlists of a quarter of the batch, ours. "
        "likelihood: the loss of the paper, over the shortlist of the row.",
    )
    temperature: float = Field(
        0.1, gt=0, le=10, description="Cosines are divided by it in a softmax. A low one looks at the nearest only."
    )
    ceiling: float = Field(0.75, gt=0, lt=1, description="c of the likelihood c exp(d (cosine - 1)).")
    steepness: float = Field(3.0, ge=1, le=100, description="d of the likelihood c exp(d (cosine - 1)).")
    cut: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Losses of negatives below this value count as 0. The published code uses 0.05, the paper 0.",
    )
    patience: int = Field(
        2, ge=0, description="Number of epochs without a better dev score after which training stops. 0: never."
    )

    def fit(self, data: TrainingData, context: FitContext) -> FittedClassifiers:
        """Train the classifiers."""
        from xcore.siamese.fitting.classifiers import fit_classifiers

        return fit_classifiers(self, in_vectors(data, self.wants), context)

    @classmethod
    def load(cls, directory: Path) -> FittedClassifiers:
        """Open what `FittedClassifiers.save` wrote."""
        return FittedClassifiers.load(directory)

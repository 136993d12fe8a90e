"""Everything that can be saved and loaded, small and fitted, with what it answers. New kinds of model join in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.contracts.test_models import MEMBERS, fitted, planted, small_siamese
from tests.tiny_encoder import write_tiny_encoder
from xcore.components import silent
from xcore.embedding.network_features import FittedNetworkFeatures, NetworkFeatures
from xcore.embedding.pca import FittedPca, Pca
from xcore.grouping.groups import Groups
from xcore.grouping.random import RandomGroups
from xcore.imputation.baseline import Baseline
from xcore.imputation.imputed import Imputed
from xcore.imputation.label_embeddings import FittedLabelEmbeddings, LabelEmbeddings
from xcore.models.base import Fitted, Model
from xcore.models.family import load_model
from xcore.models.label_subset.model import LabelSubset
from xcore.models.memory import Memory
from xcore.models.negative_sampling.model import NegativeSampling
from xcore.models.parabel import Parabel
from xcore.numeric.draws import keys_of
from xcore.numeric.matrices import NO_LABEL
from xcore.sampling.sampler import FittedSampler, FittedTree, Frequency, Tree, Uniform, load_sampler
from xcore.selection.options import LabelSelection
from xcore.selection.selected import FittedSelection
from xcore.siamese.fine_tuning import FineTuning
from xcore.siamese.modules import FittedClassifiers, FittedShortlists
from xcore.siamese.modules import FittedEncoder as SiameseWeights
from xcore.siamese.options import Shortlists
from xcore.text.family import load_text
from xcore.text.tfidf import HashedTfidf, Tfidf
from xcore.text.transformer import Transformer
from xcore.text.wordllama import FittedEncoder, WordLlama
from xcore.training.context import FitContext
from xcore.training.data import LabelSide, Matrix, TrainingData
from xcore.training.stages import prepare

TEXTS = ["a law on fish", "fish and wheat", "the price of wheat", "a law on prices"]

Answer = list[np.ndarray]


@dataclass(frozen=True)
class Loadable:
    """Something with a `save` of its own, how it is loaded, and what it answers: arrays, of which nothing is NaN."""

    save: Callable[[Path], None]
    load: Callable[[Path], Any]
    answer: Callable[[Any], Answer]
    is_sound: Callable[[Any, Answer], bool]


def everything() -> dict[str, Loadable]:
    """All kinds, each with few rows."""
    missing = {"siamesexml joint"} | ({"omikuji"} if find_spec("omikuji") is None else set())  # saved as siamesexml is
    found = {f"model {name}": of_model(model) for name, model in sorted(MEMBERS.items()) if name not in missing}
    found["model parabel, calibrated forest"] = of_model(Parabel(arity=3, depth=2, n_trees=2, calibrate="platt"))
    found["model network of components"] = of_model(MEMBERS["network of components"])
    found["model negative-sampling, shortlist"] = of_model(NegativeSampling(epochs=1, shortlist=4))
    found["model negative-sampling, frequency"] = of_model(NegativeSampling(epochs=1, method="frequency"))
    if find_spec("faiss"):
        found["model memory, graph"] = of_model(Memory(exact_below=0))
        graphs = {"shortlists": Shortlists(exact_below=0)}
        found["model siamesexml, graph"] = of_model(small_siamese().model_copy(update=graphs))
    found |= of_siamese()
    inner = NegativeSampling(epochs=1, shortlist=4)
    found["model label-subset, shortlist"] = of_model(LabelSubset(selection=LabelSelection(budget=4), model=inner))
    found["selection"] = of_selection()
    points, labels = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32), np.arange(50) % 11
    for options in (Uniform(), Frequency(), Tree()):
        found[f"sampler {options.kind}"] = of_sampler(options.fit(points, labels.astype(np.int32), 11), points)
    pca = Pca(dimensions=2).fit_blocks([points], np.random.default_rng(0))
    found["pca"] = Loadable(pca.save, FittedPca.load, lambda loaded: [loaded.transform(points)], all_finite)
    small = NetworkFeatures(width=4, hidden=(3,), epochs=1)
    network = small.fit(TrainingData.of(points, np.eye(50, 5) > 0), FitContext())
    found["network features"] = Loadable(
        network.save, FittedNetworkFeatures.load, lambda loaded: [loaded.transform(points)], all_finite
    )
    embeddings = LabelEmbeddings().fit(TrainingData.of(points, np.eye(50, 5) > 0), FitContext())
    found["label embeddings"] = Loadable(
        embeddings.save, FittedLabelEmbeddings.load, lambda loaded: [loaded.vectors], all_finite
    )
    for text in (Tfidf(), HashedTfidf(n_features=64)):
        found[f"text {text.kind}"] = of_text(text)
    vectors = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    encoder = FittedEncoder(WordLlama(), vectors, '{"model": {}}')
    found["text wordllama"] = Loadable(encoder.save, load_text, lambda loaded: [loaded.vectors[:1]], all_finite)
    if find_spec("transformers"):
        with TemporaryDirectory() as folder:
            write_tiny_encoder(Path(folder))
            tiny = Transformer(encoder=folder, max_tokens=8).fit([], silent)
        found["text transformer"] = Loadable(tiny.save, load_text, lambda loaded: [loaded.transform(TEXTS)], all_finite)
        found["model siamesexml, fine-tuned"] = of_fine_tuned()
    return found | of_groups()


def of_fine_tuned() -> Loadable:
    """A model of texts with a transformer inside."""
    data = TrainingData.of(TEXTS, np.eye(4) > 0, labels=LabelSide(["fish", "wheat", "price", "law"]))
    with TemporaryDirectory() as folder:
        transformer = Transformer(encoder=str(write_tiny_encoder(Path(folder))), max_tokens=8)
        tuning = FineTuning(transformer=transformer, layers=1)
        return of_model(small_siamese().model_copy(update={"fine_tuning": tuning}), data, TEXTS)


def of_model(options: Model, data: TrainingData | None = None, some: Matrix = None) -> Loadable:
    rows = planted(20, seed=1).X if some is None else some

    def answer(model: Fitted) -> Answer:
        top = model.predict_topk(rows, 4)
        return [top.labels, top.scores]

    def is_sound(model: Fitted, answer: Answer) -> bool:
        labels, scores = answer
        ranked = (scores[:, :-1] >= scores[:, 1:]).all() and np.isfinite(scores[labels != NO_LABEL]).all()
        distinct = all(len(set(row)) == len(row) for row in (own[own != NO_LABEL].tolist() for own in labels))
        return bool(ranked and distinct and (labels >= NO_LABEL).all() and (labels < model.n_labels).all())

    return Loadable(fitted(options, data).save, load_model, answer, is_sound)


def of_siamese() -> dict[str, Loadable]:
    """The modules of SiameseXML."""
    stages = prepare(small_siamese(), planted(), FitContext()).stages
    rows = planted(20, seed=1).X
    encoder, lists = stages["encoder"].fitted, stages["shortlists"].fitted
    queries = encoder.encoder.intermediate(rows)

    def found(loaded: FittedShortlists) -> Answer:
        return [loaded.negatives, loaded.names.nearest(queries, 3, 10), loaded.centroids.nearest(queries, 3, 10)]

    return {
        "siamese encoder": Loadable(
            encoder.save, SiameseWeights.load, lambda own: [own.encoder.encode(rows), own.labels], all_finite
        ),
        "siamese shortlists": Loadable(lists.save, FittedShortlists.load, found, all_finite),
        "siamese classifiers": Loadable(
            stages["classifiers"].fitted.save, FittedClassifiers.load, lambda own: [own.residual, own.eta], all_finite
        ),
    }


def of_sampler(fitted_sampler: FittedSampler, points: np.ndarray) -> Loadable:
    def answer(sampler: FittedSampler) -> Answer:
        X = points if sampler.n_features else points[:, :0]
        draws = sampler.sample(X, 5, keys_of(np.uint64(1), 0, np.arange(len(X))))
        found = [draws.labels, draws.log_probs, sampler.log_prob_all(X), sampler.log_prob(X, draws.labels)]
        return found + ([sampler.shortlist(X, 4).labels] if isinstance(sampler, FittedTree) else [])

    def is_sound(sampler: FittedSampler, answer: Answer) -> bool:
        drawn = answer[0]
        return all_finite(sampler, answer) and bool((drawn >= 0).all() and (drawn < sampler.n_labels).all())

    return Loadable(fitted_sampler.save, load_sampler, answer, is_sound)


def of_selection() -> Loadable:
    fitted_selection = LabelSelection(budget=4, error_weight=2.0, outlier_above=0.9).fit(planted(), FitContext())

    def answer(loaded: FittedSelection) -> Answer:
        mapped = loaded.coefficients @ np.ones(len(loaded.chosen))
        return [loaded.chosen, loaded.gains, loaded.trained, loaded.rows, loaded.errors, mapped]

    def is_sound(loaded: FittedSelection, answer: Answer) -> bool:
        trained = answer[2]
        return all_finite(loaded, answer) and bool((trained >= 0).all() and (trained < loaded.n_labels).all())

    return Loadable(fitted_selection.save, FittedSelection.load, answer, is_sound)


def of_text(options: Tfidf | HashedTfidf) -> Loadable:
    text = options.fit([TEXTS], silent)

    def answer(loaded: Any) -> Answer:
        rows = loaded.transform([*TEXTS, "unknown", ""])
        return [rows.data, rows.indices, rows.indptr]

    return Loadable(text.save, load_text, answer, all_finite)


def of_groups() -> dict[str, Loadable]:
    data = planted(20)
    groups = RandomGroups(size=3).group(data.X, data.Y, np.random.default_rng(0))
    imputed = Baseline().impute(data.X, groups, np.random.default_rng(0))

    def of_csr(matrix: Any) -> Answer:
        return [matrix.data, matrix.indices, matrix.indptr]

    return {
        "groups": Loadable(
            groups.save, Groups.load, lambda loaded: of_csr(loaded.members) + of_csr(loaded.labels), all_finite
        ),
        "imputed": Loadable(imputed.save, Imputed.load, lambda loaded: of_csr(loaded.Y), all_finite),
    }


def all_finite(loaded: Any, answer: Answer) -> bool:
    return all(np.isfinite(array).all() for array in answer)

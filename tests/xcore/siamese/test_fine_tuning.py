"""Fine-tuning: the last layers of a transformer learn, those below stay, and a model of texts comes out of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tiny_encoder import write_tiny_encoder
from xcore.components import silent
from xcore.errors import ArtifactDamaged, ConfigError
from xcore.models.base import Extensible
from xcore.models.siamesexml import SiameseXml
from xcore.models.siamesexml.fitted import FittedSiamese
from xcore.numeric.arrays import open_arrays, write_arrays
from xcore.numeric.matrices import binary_csr
from xcore.siamese.fine_tuning import FineTuning
from xcore.siamese.options import Classifiers, SiameseEncoder
from xcore.text.transformer import FittedTransformer, Transformer
from xcore.training import checkpoints
from xcore.training.context import FitContext
from xcore.training.data import LabelSide, TrainingData

pytest.importorskip("transformers", reason="the extra eyrie[transformer] is not installed")

NAMES = ["fish", "wheat", "prices", "law", "herring", "sea"]
# Words that go with a label in texts, and do not occur in its name.
OWN = [["cod", "boats"], ["a", "and"], ["price", "of"], ["on", "the"], ["x", "y"], ["z", "q"]]
NOISE = ["k", "m", "n", "u"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_encoder(tmp_path_factory.mktemp("encoder"), dimensions=32, layers=3)


def labelled_texts(n: int, seed: int) -> tuple[list[str], np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(NAMES), n)
    texts = [" ".join(rng.permutation([*rng.choice(OWN[label], 3), rng.choice(NOISE)])) for label in labels]
    return texts, labels


def training(n: int = 960, seed: int = 0) -> TrainingData:
    def part(n: int, seed: int) -> tuple[list[str], object]:
        texts, labels = labelled_texts(n, seed)
        return texts, binary_csr(labels, np.arange(n + 1), len(NAMES))

    return TrainingData.of(*part(n, seed), dev=part(60, seed + 1), labels=LabelSide(NAMES))


def options(folder: Path, **changes: object) -> FineTuning:
    base = {"transformer": Transformer(encoder=str(folder), max_tokens=16), "epochs": 6, "batch_size": 32}
    return FineTuning.model_validate(base | {"learning_rate": 0.005, "temperature": 0.2, "patience": 0} | changes)


def model(folder: Path) -> SiameseXml:
    return SiameseXml(
        fine_tuning=options(folder),
        encoder=SiameseEncoder(epochs=2, learning_rate=0.01),
        classifiers=Classifiers(epochs=4, learning_rate=0.01),
    )


@pytest.fixture(scope="module")
def fitted(folder: Path) -> FittedSiamese:
    found = model(folder).fit(training(), FitContext(rng=np.random.default_rng(7)))
    assert isinstance(found, FittedSiamese)
    return found


class Reports:
    """Keeps all metrics."""

    def __init__(self) -> None:
        self.metrics: list[Mapping[str, float]] = []

    def __call__(self, step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        self.metrics += [metrics] if metrics else []


def test_the_last_layers_change_and_those_below_stay(folder: Path) -> None:
    reports = Reports()
    before = options(folder).transformer.fit([], silent).weights
    after = options(folder, layers=2).fit(training(), FitContext(report=reports)).weights
    changed = {name for name, value in after.items() if not np.array_equal(value, before[name])}
    assert before.keys() == after.keys()
    assert changed == {name for name in before if name.startswith(("encoder.layer.1.", "encoder.layer.2."))}
    losses = [metrics["loss"] for metrics in reports.metrics if "loss" in metrics]
    assert len(losses) == 6
    assert losses[-1] < losses[0] / 2


def test_rows_come_nearer_to_the_names_of_their_labels(folder: Path) -> None:
    def n_right(text: FittedTransformer) -> int:
        texts, labels = labelled_texts(100, seed=5)
        return int((np.argmax(text.transform(texts) @ text.transform(NAMES).T, axis=1) == labels).sum())

    assert n_right(options(folder).transformer.fit([], silent)) < 50
    assert n_right(options(folder).fit(training(), FitContext())) >= 80


def test_without_a_better_epoch_the_given_weights_stay(folder: Path) -> None:
    ruinous = options(folder, learning_rate=30.0, epochs=1)
    before, data = ruinous.transformer.fit([], silent), training()
    # Dev rows that the given encoder ranks well: the names themselves.
    named = TrainingData.of(data.X, data.Y, dev=(NAMES, np.eye(len(NAMES)) > 0), labels=data.labels)
    after = ruinous.fit(named, FitContext())
    assert all(np.array_equal(value, before.weights[name]) for name, value in after.weights.items())


class Killed(Exception):
    """Stands for a signal."""


def killed_at(step: int) -> Callable[..., None]:
    def report(now: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        if now >= step:
            raise Killed

    return report


def test_a_killed_fine_tuning_resumes_to_the_same_bits(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SHARE", 1e9)

    def context(**changes: Any) -> FitContext:
        return replace(FitContext(rng=np.random.default_rng(3)), **changes)

    whole = options(folder).fit(training(), context())
    for stop in (45, 101):
        with pytest.raises(Killed):
            options(folder).fit(training(), context(scratch=tmp_path, report=killed_at(stop)))
    assert list(tmp_path.iterdir()), "a checkpoint was written"
    reports = Reports()
    resumed = options(folder).fit(training(), context(scratch=tmp_path, report=reports))
    assert len([metrics for metrics in reports.metrics if "loss" in metrics]) < 6, "not all epochs are run again"
    assert all(np.array_equal(value, whole.weights[name]) for name, value in resumed.weights.items())


def test_a_model_of_texts_is_trained_saved_and_loaded(fitted: FittedSiamese, tmp_path: Path) -> None:
    texts, labels = labelled_texts(80, seed=9)
    top = fitted.predict_topk(texts, 3)
    assert (fitted.form, fitted.n_features, fitted.n_labels) == ("text", 0, len(NAMES))
    assert (top.labels[:, 0] == labels).mean() > 0.9
    fitted.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if not path.is_file()] == []
    found = FittedSiamese.load(tmp_path).predict_topk(texts, 3)
    assert np.array_equal(found.labels, top.labels)
    assert np.array_equal(found.scores, top.scores)
    alone = fitted.predict_topk(texts[7:8], 3)
    assert np.array_equal(alone.scores, top.scores[7:8])
    assert fitted.predict_topk([], 3).labels.shape == (0, 3)


def test_damaged_files_of_the_transformer_are_refused(fitted: FittedSiamese, tmp_path: Path, folder: Path) -> None:
    fitted.save(tmp_path)
    path = tmp_path / "text.weights.safetensors"
    arrays = {name: array.copy() for name, array in open_arrays(path).items()}
    name = "encoder.layer.2.output.dense.weight"
    for wrong in (np.full_like(arrays[name], np.nan), arrays[name][:-1]):
        write_arrays(path, arrays | {name: wrong})
        with pytest.raises(ArtifactDamaged, match=r"not finite|does not fit config"):
            FittedSiamese.load(tmp_path)
    other = Transformer(encoder=str(write_tiny_encoder(tmp_path / "other", dimensions=8)), max_tokens=16)
    replace(fitted, text=other.fit([], silent)).save(tmp_path)
    with pytest.raises(ArtifactDamaged, match="makes vectors of 8 numbers, the encoder takes 32"):
        FittedSiamese.load(tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(about | {"form": "image"}))
    with pytest.raises(ArtifactDamaged, match="form"):
        FittedSiamese.load(tmp_path)


def test_labels_that_come_later_are_predicted_by_their_names(fitted: FittedSiamese) -> None:
    assert isinstance(fitted, Extensible)
    more = fitted.with_labels(LabelSide(["boats at sea"]))
    assert more.n_labels == len(NAMES) + 1
    assert more.predict_topk(["boats at sea"], 1).labels[0, 0] == len(NAMES)


def test_what_cannot_be_fine_tuned_is_refused(folder: Path, tmp_path: Path) -> None:
    data = training()
    with pytest.raises(ConfigError, match="4 layers are to be trained, but the encoder's network has 3 layers"):
        options(folder, layers=4).fit(data, FitContext())
    with pytest.raises(ConfigError, match="the labels have no names"):
        options(folder).fit(replace(data, labels=None), FitContext())
    with pytest.raises(ConfigError, match="fine_tuning takes texts, but the rows are vector"):
        model(folder).fit(TrainingData.of(np.eye(6), np.eye(6) > 0))

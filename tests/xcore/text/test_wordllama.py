"""The sentence encoder that ships in a package; skipped where the extra is not installed."""

from pathlib import Path

import numpy as np
import pytest

from flows.params import PipelineParams
from flows.plans import plan_pipeline
from tasks import settings
from tests.small_models import write_texts
from xcore.components import silent
from xcore.errors import ConfigError
from xcore.models.family import load_model
from xcore.text.family import load_text
from xcore.text.wordllama import FittedEncoder, WordLlama


@pytest.fixture(scope="module")
def encoder() -> FittedEncoder:
    pytest.importorskip("tokenizers", reason="the extra eyrie[encoder] is not installed")
    return WordLlama().fit([], silent)


def vectors(encoder: FittedEncoder, *texts: str) -> np.ndarray:
    return encoder.transform(texts)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcore.text.wordllama.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs the package wordllama.*pip install 'eyrie\[encoder\]'"):
        WordLlama().fit([], silent)


def test_rows_are_dense_and_of_length_one_but_for_a_text_without_tokens(encoder: FittedEncoder) -> None:
    rows = encoder.transform(["fishing quotas in the Baltic Sea", "", "a law"])
    assert rows.shape == (3, encoder.n_features) == (3, 256)
    assert rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 0, 1], abs=1e-5)


def test_texts_of_one_meaning_are_nearer_than_others(encoder: FittedEncoder) -> None:
    fish, boats, wheat = vectors(encoder, "catching cod and herring at sea", "fishing vessels", "the price of wheat")
    assert fish @ boats > fish @ wheat + 0.1


def test_a_row_does_not_depend_on_its_neighbours_and_only_the_first_tokens_count(encoder: FittedEncoder) -> None:
    texts = ["one", "two words", "and three words " * 50] * 200
    whole = vectors(encoder, *texts)
    assert np.array_equal(whole[400:402], vectors(encoder, *texts[400:402]))
    short = FittedEncoder(WordLlama(max_tokens=1), encoder.vectors, encoder.tokenizer)
    assert np.array_equal(vectors(short, "fish and chips"), vectors(short, "fish or flesh"))


def test_a_saved_encoder_makes_the_same_vectors(encoder: FittedEncoder, tmp_path: Path) -> None:
    encoder.save(tmp_path)
    loaded = load_text(tmp_path)
    assert isinstance(loaded, FittedEncoder)
    assert np.array_equal(vectors(loaded, "a text", "another"), vectors(encoder, "a text", "another"))


def test_sequences_are_the_tokens_whose_mean_is_the_vector(encoder: FittedEncoder) -> None:
    texts = ["fishing quotas in the Baltic Sea", "", "a law"]
    tokens = encoder.sequences(texts)
    assert tokens.shape == (3, len(encoder.vectors))
    sums = [encoder.vectors[tokens[row : row + 1].ids].sum(axis=0) for row in (0, 2)]
    expected = np.stack([total / np.linalg.norm(total) for total in sums])
    np.testing.assert_allclose(vectors(encoder, *texts)[[0, 2]], expected, atol=1e-6)
    assert len(tokens[1:2].ids) == 0


@pytest.mark.parametrize("kind", ["parabel", "negative-sampling"])
def test_models_of_sparse_rows_and_of_vectors_learn_from_it(
    kind: str, encoder: FittedEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    files = {
        "train": [write_texts(tmp_path / "train.jsonl", 80, 0)],
        "test": [write_texts(tmp_path / "test.jsonl", 20, 1)],
    }
    data = {"reader": {"kind": "jsonl", "text": "text"}, **files}
    tree = {"data": data, "text": {"kind": "wordllama"}, "model": {"kind": kind}, "evaluation": {"n_bootstrap": 0}}
    plan = plan_pipeline(PipelineParams.model_validate(tree))
    for step in plan.evaluation.lineage():
        made = settings.store().make(step).artifact
    assert made.manifest.counts["rows"] == 20
    fitted = load_model(settings.store().open(plan.model.ref).directory)
    assert (fitted.form, fitted.n_features) == ({"parabel": "sparse"}.get(kind, "vector"), 256)

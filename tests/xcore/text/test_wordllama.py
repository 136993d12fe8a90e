"""The sentence encoder that ships in a package; skipped where the extra is not installed."""

from pathlib import Path

import numpy as np
import pytest

from xcore.components import silent
from xcore.errors import ConfigError
from xcore.text.family import load_text
from xcore.text.wordllama import FittedEncoder, WordLlama


@pytest.fixture(scope="module")
def encoder() -> FittedEncoder:
    pytest.importorskip("tokenizers", reason="the extra eyrie[encoder] is not installed")
    return WordLlama().fit([], silent)


def vectors(encoder: FittedEncoder, *texts: str) -> np.ndarray:
    return encoder.transform(texts).toarray()


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcore.text.wordllama.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs the package wordllama.*pip install 'eyrie\[encoder\]'"):
        WordLlama().fit([], silent)


def test_rows_are_of_length_one_and_have_no_gaps_but_for_a_text_without_tokens(encoder: FittedEncoder) -> None:
    rows = encoder.transform(["fishing quotas in the Baltic Sea", "", "a law"])
    assert rows.shape == (3, encoder.n_features) == (3, 256)
    assert rows.nnz == 3 * 256
    assert np.linalg.norm(rows.toarray(), axis=1) == pytest.approx([1, 0, 1], abs=1e-5)


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

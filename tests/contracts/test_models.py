"""What every model of the family promises. A new member is picked up from the union by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest
import scipy.sparse as sp
import threadpoolctl
from pydantic import TypeAdapter, ValidationError

from xcore.embedding.pca import Pca
from xcore.errors import ConfigError
from xcore.heads.base import Head
from xcore.heads.cascade import MultiHeadCascade
from xcore.heads.label_sets import LabelSets
from xcore.heads.mixture import MultiHeadMixture
from xcore.heads.sampled import MultiHeadSampling
from xcore.models.base import Fitted, Model
from xcore.models.family import MODEL_KINDS, AnyModel
from xcore.models.network import NeuralNetwork
from xcore.models.siamesexml import SiameseXml
from xcore.numeric.arrays import open_arrays
from xcore.numeric.matrices import CSR, NO_LABEL, TopK, binary_csr, csr
from xcore.siamese.options import Classifiers, SiameseEncoder
from xcore.training import checkpoints
from xcore.training.context import FitContext
from xcore.training.data import Bags, TrainingData

N_FEATURES, N_LABELS = 60, 12
UNSEEN_LABEL = N_LABELS - 1


def planted(n: int = 240, seed: int = 0) -> TrainingData:
    """Each label owns four features; a row holds those of its one to three labels, and noise. One label is unseen."""
    rng = np.random.default_rng(seed)
    labels = [np.sort(rng.choice(UNSEEN_LABEL, rng.integers(1, 4), replace=False)) for _ in range(n)]
    X = np.zeros((n, N_FEATURES), np.float32)
    for row, own in enumerate(labels):
        X[row, rng.choice(N_FEATURES, 4, replace=False)] = 0.3
        for label in own:
            X[row, 4 * label : 4 * label + 4] = rng.uniform(0.5, 1.5, 4)
    return TrainingData.of(sparse(X), lists(labels))


def sparse(X: np.ndarray) -> CSR:
    matrix = sp.csr_array(X)
    return csr(matrix.data, matrix.indices, matrix.indptr, X.shape[1])


def lists(labels: list[np.ndarray]) -> CSR:
    indptr = np.cumsum([0] + [len(own) for own in labels])
    return binary_csr(np.concatenate([np.zeros(0, np.int32), *labels]), indptr, N_LABELS)


def empty_rows(n: int) -> CSR:
    return csr(np.zeros(0), np.zeros(0), np.zeros(n + 1), N_FEATURES)


def asked_for(model: Model, data: TrainingData) -> TrainingData:
    """The data with what the model wants: bags of one row and of two rows in turn, with the labels of their rows."""
    if "bags" not in model.wants:
        return data
    n = data.Y.shape[0]
    starts = [at for at in range(n) if at % 3 != 2]
    return replace(data, bags=Bags(binary_csr(np.arange(n), [*starts, n], n)))


def fitted(model: Model, data: TrainingData | None = None) -> Fitted:
    return model.fit(asked_for(model, data or planted()), FitContext(rng=np.random.default_rng(7)))


def saved_bytes(model: Fitted, directory: Path) -> dict[str, str]:
    directory.mkdir()
    model.save(directory)
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def same(a: TopK, b: TopK) -> bool:
    return np.array_equal(a.labels, b.labels) and np.array_equal(a.scores, b.scores)


@contextmanager
def torch_threads(n_threads: int) -> Iterator[None]:
    """Hold the threads of torch as well, if any model has loaded it."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def with_head(head: Head) -> Model:
    return NeuralNetwork(width=64, epochs=12, batch_size=32, learning_rate=0.01, head=head)


def small_siamese() -> Model:
    return SiameseXml(
        encoder=SiameseEncoder(dimensions=24, epochs=6, learning_rate=0.02, refresh=2),
        classifiers=Classifiers(epochs=6, learning_rate=0.01),
    )


# Every kind as it is by default (siamesexml with small vectors), and the heads that a network can have.
MEMBERS: dict[str, Model] = {kind: model() for kind, model in MODEL_KINDS.items()} | {
    "siamesexml": small_siamese(),
    "siamesexml joint": small_siamese().model_copy(update={"joint_epochs": 2}),
    "network of components": NeuralNetwork(width=64, epochs=12, batch_size=32, embedding=Pca(dimensions=24)),
    "network mhp-sets": with_head(LabelSets(labels_per_head=3)),
    "network mhc": with_head(MultiHeadCascade(candidates=3, bottleneck=32)),
    "network mhc of three heads": with_head(MultiHeadCascade(heads=3, candidates=3, bottleneck=32, order="random")),
    "network mhs": with_head(MultiHeadSampling(order="clustered")),
    "network g-mhe": with_head(MultiHeadMixture(parts=8)),
}


@pytest.fixture(params=sorted(MEMBERS))
def model(request: pytest.FixtureRequest) -> Model:
    if request.param == "omikuji":
        pytest.importorskip("omikuji")
    return MEMBERS[request.param]


@pytest.fixture(scope="module")
def trained() -> dict[str, Fitted]:
    return {}


@pytest.fixture
def ready(model: Model, trained: dict[str, Fitted]) -> Fitted:
    """One fit of each model on the planted data, shared by the tests that only predict."""
    name = str(model.options())
    if name not in trained:
        trained[name] = fitted(model)
    return trained[name]


@pytest.fixture
def deterministic(model: Model) -> Model:
    if not model.deterministic:
        pytest.skip(f"{type(model).__name__} declares that its fits differ")
    return model


def test_options_round_trip_through_json_and_name_the_model(model: Model) -> None:
    adapter: TypeAdapter[Model] = TypeAdapter(AnyModel)
    back = adapter.validate_json(model.model_dump_json())
    assert back == model
    assert type(back) is type(model)
    assert back.options() == model.options()


def test_an_unknown_option_is_refused(model: Model) -> None:
    with pytest.raises(ValidationError, match="no_such_option"):
        TypeAdapter(AnyModel).validate_python(model.options() | {"no_such_option": 1})


def test_options_are_frozen_and_described(model: Model) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        model.kind = "other"
    undescribed = [name for name, field in type(model).model_fields.items() if name != "kind" and not field.description]
    assert undescribed == []


def test_planted_labels_are_found(ready: Fitted) -> None:
    held_out = planted(100, seed=1)
    top = ready.predict_topk(held_out.X, 3)
    true = held_out.Y.toarray() > 0
    assert true[np.arange(100), top.labels[:, 0]].mean() >= 0.97
    n_true = true.sum(axis=1)
    found = sum(true[i, top.labels[i, : n_true[i]]].sum() for i in range(100))
    assert found / n_true.sum() >= 0.9


def test_a_ranking_is_sorted_without_repeats_and_within_the_label_space(ready: Fitted) -> None:
    assert (ready.n_features, ready.n_labels) == (N_FEATURES, N_LABELS)
    top = ready.predict_topk(planted(50, seed=2).X, 5)
    assert top.labels.shape == (50, 5)
    assert top.labels.dtype == np.int32
    assert top.scores.dtype == np.float32
    assert not np.isnan(top.scores).any()
    assert (top.scores[:, :-1] >= top.scores[:, 1:]).all()
    for row in top.labels:
        offered = row[row != NO_LABEL]
        assert len(set(offered.tolist())) == len(offered)
        assert ((offered >= 0) & (offered < N_LABELS)).all()


def test_a_saved_model_predicts_the_same(model: Model, ready: Fitted, tmp_path: Path) -> None:
    ready.save(tmp_path)
    loaded = type(model).load(tmp_path)
    rows = planted(40, seed=3).X
    assert (loaded.n_features, loaded.n_labels) == (N_FEATURES, N_LABELS)
    found, expected = loaded.predict_topk(rows, 4), ready.predict_topk(rows, 4)
    if model.deterministic:
        assert same(found, expected)
    else:
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-6)


def test_a_saved_model_is_a_flat_folder(ready: Fitted, tmp_path: Path) -> None:
    ready.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if not path.is_file()] == []


def test_nothing_saved_is_a_pickle(ready: Fitted, tmp_path: Path) -> None:
    ready.save(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert path.suffix not in {".pkl", ".pickle", ".joblib", ".pt", ".pth", ".npz", ".npy"}, path.name
        assert path.read_bytes()[:1] != b"\x80", f"{path.name} starts like a pickle"


def test_two_fits_write_the_same_bytes(deterministic: Model, ready: Fitted, tmp_path: Path) -> None:
    again = fitted(deterministic)
    assert saved_bytes(ready, tmp_path / "first") == saved_bytes(again, tmp_path / "second")


def test_one_thread_and_two_write_the_same_bytes_and_predict_the_same(deterministic: Model, tmp_path: Path) -> None:
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("numba was started with one thread")
    rows, before = planted(600, seed=4), numba.get_num_threads()
    written, rankings = [], []
    try:
        for n_threads in (1, 2):
            numba.set_num_threads(n_threads)
            with threadpoolctl.threadpool_limits(n_threads), torch_threads(n_threads):
                result = fitted(deterministic, rows)
                rankings.append(result.predict_topk(rows.X, 3))
            written.append(saved_bytes(result, tmp_path / str(n_threads)))
    finally:
        numba.set_num_threads(before)
    assert written[0] == written[1]
    assert same(*rankings)


def test_one_row_alone_is_predicted_as_in_a_batch(ready: Fitted) -> None:
    rows = planted(30, seed=5).X
    batch = ready.predict_topk(rows, 4)
    for i in (0, 7, 29):
        alone = ready.predict_topk(rows[i : i + 1], 4)
        assert same(alone, TopK(batch.labels[i : i + 1], batch.scores[i : i + 1]))


def test_a_shorter_ranking_is_the_start_of_a_longer_one(deterministic: Model, ready: Fitted) -> None:
    rows = planted(30, seed=6).X
    assert np.array_equal(ready.predict_topk(rows, 1).labels, ready.predict_topk(rows, 5).labels[:, :1])


def test_k_beyond_the_number_of_labels_is_padded(ready: Fitted) -> None:
    top = ready.predict_topk(planted(6, seed=7).X, N_LABELS + 5)
    assert top.labels.shape == (6, N_LABELS + 5)
    assert (top.labels[:, N_LABELS:] == NO_LABEL).all()
    assert np.array_equal(top.labels == NO_LABEL, np.isneginf(top.scores))


def test_no_rows_give_an_empty_ranking(ready: Fitted) -> None:
    assert ready.predict_topk(empty_rows(0), 3).labels.shape == (0, 3)


def test_rows_without_features_are_ranked_alike(ready: Fitted) -> None:
    top = ready.predict_topk(empty_rows(3), 3)
    assert (top.labels == top.labels[0]).all()
    assert not np.isnan(top.scores).any()


def test_rows_without_features_or_labels_do_not_break_training(model: Model) -> None:
    data = planted()
    X = sp.vstack([data.X, empty_rows(5), data.X[:5]]).tocsr()
    Y = sp.vstack([data.Y, data.Y[:5], sp.csr_array((5, N_LABELS), dtype=np.float32)]).tocsr()
    bent = TrainingData.of(csr(X.data, X.indices, X.indptr, N_FEATURES), csr(Y.data, Y.indices, Y.indptr, N_LABELS))
    held_out = planted(60, seed=8)
    top = fitted(model, bent).predict_topk(held_out.X, 1)
    assert (held_out.Y.toarray()[np.arange(60), top.labels[:, 0]] > 0).mean() >= 0.95


def test_a_label_without_rows_is_never_the_best(ready: Fitted) -> None:
    assert UNSEEN_LABEL not in ready.predict_topk(planted(100, seed=9).X, 1).labels


def test_weights_of_positives_are_accepted_and_matter(model: Model) -> None:
    """Two labels share all rows; the one held with more weight comes first."""
    data = planted()
    for trusted, doubted in ((0, 1), (1, 0)):
        on = np.flatnonzero(data.Y.toarray()[:, 0] + data.Y.toarray()[:, 1] > 0)
        dense = data.Y.toarray()
        dense[on, trusted], dense[on, doubted] = 1.0, 0.2
        Y = sp.csr_array(dense)
        weighted = TrainingData.of(data.X, csr(Y.data, Y.indices, Y.indptr, N_LABELS))
        top = fitted(model, weighted).predict_topk(data.X[on], N_LABELS)
        place = {label: np.argmax(top.labels == label, axis=1) for label in (trusted, doubted)}
        assert (place[trusted] < place[doubted]).mean() >= 0.9


def test_certain_targets_are_read_alike(deterministic: Model, tmp_path: Path) -> None:
    """With all q = 1 there is nothing to read: both readings give the same bytes."""
    data = planted(90)
    both = [replace(data, reading="weight"), replace(data, reading="target")]
    saved = [saved_bytes(fitted(deterministic, one), tmp_path / one.reading) for one in both]
    assert saved[0] == saved[1]


def test_a_larger_target_gives_a_larger_score(model: Model) -> None:
    """One label owns a feature. The more certain its targets are, the higher the feature raises it over the others."""
    data, others = planted(150), planted(150, seed=9)
    dense, ranks = data.Y.toarray(), []
    on, asked = dense[:, 0] > 0, others.X[np.flatnonzero(others.Y.toarray()[:, 0])]
    for q in (0.05, 0.5, 0.95):
        dense[on, 0] = q
        targets = TrainingData.of(data.X, sparse(dense), reading="target")
        top = fitted(model, targets).predict_topk(asked, N_LABELS)
        ranks.append(float((top.labels == 0).argmax(axis=1).mean()))
    assert ranks[0] >= ranks[1] >= ranks[2]
    assert ranks[0] > ranks[2]


def test_progress_is_reported_monotone_and_ends_complete(model: Model) -> None:
    steps: list[tuple[int, int]] = []

    def report(step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
        steps.append((step, total))

    model.fit(asked_for(model, planted()), FitContext(rng=np.random.default_rng(0), report=report))
    assert steps
    assert [step for step, _ in steps] == sorted(step for step, _ in steps)
    assert len({total for _, total in steps}) == 1
    assert steps[-1][0] == steps[-1][1]


class Killed(Exception):
    """Stands for a signal: nothing after it is run."""


def killing(step: int, total: int, metrics: Mapping[str, float] | None = None) -> None:
    if step >= 0.5 * total:
        raise Killed


@pytest.fixture
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SHARE", 0.5)


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, dict[str, str]]:
    return {}


@pytest.fixture
def expected(deterministic: Model, undisturbed: dict[str, dict[str, str]], tmp_path: Path) -> dict[str, str]:
    """The bytes of a fit that nothing disturbs, made once for each model."""
    if not deterministic.resumes:
        pytest.skip(f"{type(deterministic).__name__} declares that it keeps nothing")
    name = str(deterministic.options())
    if name not in undisturbed:
        whole = deterministic.fit(asked_for(deterministic, many_pieces()), FitContext(rng=np.random.default_rng(7)))
        undisturbed[name] = saved_bytes(whole, tmp_path / "undisturbed")
    return undisturbed[name]


@pytest.mark.usefixtures("frequent_checkpoints")
def test_a_killed_fit_resumes_to_the_same_bytes(deterministic: Model, expected: dict[str, str], tmp_path: Path) -> None:
    data, scratch = asked_for(deterministic, many_pieces()), tmp_path / "scratch"
    with pytest.raises(Killed):
        deterministic.fit(data, FitContext(rng=np.random.default_rng(7), report=killing, scratch=scratch))
    assert list(scratch.iterdir()), "something was kept"
    written = {path: path.read_bytes() for path in kept_files(scratch)}
    resumed = deterministic.fit(data, FitContext(rng=np.random.default_rng(7), scratch=scratch))
    assert saved_bytes(resumed, tmp_path / "resumed") == expected
    assert all(path.read_bytes() == was for path, was in written.items() if "-" in path.name)
    pieces = [
        (path.parent, key)
        for path in kept_files(scratch)
        if "-" in path.name
        for key in open_arrays(path)
        if key != "digest"
    ]
    assert len(pieces) == len(set(pieces)), "no piece was made twice"


@pytest.mark.usefixtures("frequent_checkpoints")
def test_a_damaged_checkpoint_is_not_used(
    deterministic: Model, expected: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, scratch = asked_for(deterministic, many_pieces()), tmp_path / "scratch"
    with pytest.raises(Killed):
        deterministic.fit(data, FitContext(rng=np.random.default_rng(7), report=killing, scratch=scratch))
    assert list(scratch.iterdir())
    for path in kept_files(scratch):
        kept = path.read_bytes()
        middle = len(kept) // 2
        changed = bytes(255 - byte for byte in kept[middle : middle + 200])
        path.write_bytes(kept[:middle] + changed + kept[middle + 200 :])
    again = deterministic.fit(data, FitContext(rng=np.random.default_rng(7), scratch=scratch))
    assert "damaged" in caplog.text
    assert saved_bytes(again, tmp_path / "again") == expected


def kept_files(scratch: Path) -> list[Path]:
    """All checkpoints; models inside a model have folders of their own."""
    return [path for path in sorted(scratch.rglob("*")) if path.is_file()]


def many_pieces() -> TrainingData:
    """The planted rows with many times the labels, so that every model has several pieces of work."""
    data, copies = planted(), 24
    Y = sp.hstack([data.Y] * copies).tocsr()
    return TrainingData.of(data.X, Y)


def test_a_matrix_of_any_format_is_learnt_from_alike(deterministic: Model, tmp_path: Path) -> None:
    data = planted()
    square = data.X[:N_FEATURES], data.Y[:N_FEATURES]
    given = fitted(deterministic, TrainingData.of(*square))
    others = (sp.csc_array(square[0]), sp.coo_array(square[1])), (sp.csc_matrix(square[0]), square[1].toarray())
    for number, (X, Y) in enumerate(others):
        found = fitted(deterministic, TrainingData.of(X, Y))
        assert saved_bytes(found, tmp_path / f"{number}") == saved_bytes(given, tmp_path / f"given{number}")
        assert same(found.predict_topk(X, 3), given.predict_topk(square[0], 3))


def test_stored_zeros_of_the_targets_are_no_labels() -> None:
    Y = planted(5).Y.copy()
    n_before, Y.data[0] = Y.nnz, 0
    assert TrainingData.of(planted(5).X, Y).Y.nnz == n_before - 1


def test_features_that_are_not_finite_are_refused_in_training_and_in_prediction(ready: Fitted) -> None:
    rows = planted(5, seed=1).X.copy()
    rows.data[3] = np.nan
    with pytest.raises(ConfigError, match="NaN or infinite"):
        TrainingData.of(rows, planted(5).Y)
    with pytest.raises(ConfigError, match="NaN or infinite"):
        ready.predict_topk(rows, 3)


def test_rows_that_do_not_fit_and_a_rank_of_zero_are_refused(ready: Fitted) -> None:
    with pytest.raises(ConfigError, match=f"trained on {N_FEATURES} features, got rows with 3"):
        ready.predict_topk(sp.csr_array((2, 3), dtype=np.float32), 3)
    with pytest.raises(ConfigError, match="k must be at least 1, got 0"):
        ready.predict_topk(planted(3).X, 0)


def test_vectors_are_learnt_from_where_a_model_takes_them(model: Model) -> None:
    data, held_out = planted(), planted(60, seed=8)
    top = fitted(model, TrainingData.of(data.X.toarray(), data.Y)).predict_topk(held_out.X.toarray(), 1)
    assert (held_out.Y.toarray()[np.arange(60), top.labels[:, 0]] > 0).mean() >= 0.9


def test_rows_of_a_form_that_no_model_takes_are_refused(model: Model) -> None:
    if "text" not in model.takes:
        with pytest.raises(ConfigError, match="rows are text"):
            model.fit(TrainingData.of(["a text", "another"], np.eye(2)))

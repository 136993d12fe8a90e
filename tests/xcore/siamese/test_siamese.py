"""What SiameseXML promises without data: norms, likelihood, lemmas, negatives, shortlists, and where modules start."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from xcore.components import silent
from xcore.errors import ConfigError
from xcore.models.base import Extensible
from xcore.models.siamesexml import SiameseXml
from xcore.models.siamesexml.fitted import FittedSiamese
from xcore.numeric.matrices import NO_LABEL
from xcore.numeric.ragged import TokenRows
from xcore.search.keys import unit_rows
from xcore.siamese.encoder import Activation, Encoder, bag_of_tokens
from xcore.siamese.fitting.classifiers import ClassifierProblem
from xcore.siamese.fitting.encoder import first_encoder
from xcore.siamese.fitting.likelihood import Pairs, negative_loss, positive_loss, softmax_loss
from xcore.siamese.fitting.negatives import hardest_in_batch, nearest_wrong_rows, pairs_of_batch
from xcore.siamese.fitting.towers import unit
from xcore.siamese.index import LabelIndex
from xcore.siamese.modules import label_vectors
from xcore.siamese.options import Classifiers, Shortlists, SiameseEncoder
from xcore.text.wordllama import WordLlama
from xcore.training.context import FitContext
from xcore.training.data import LabelSide, TrainingData
from xcore.training.shards import Lookup
from xcore.training.stages import prepare

MODULE_ONE, MODULE_THREE = (0.9, 1.5), (0.75, 3.0)
TOPICS, LABELS_PER_TOPIC, TOKENS_PER_LABEL = 20, 10, 3


def encoder(activation: Activation = "relu", seed: int = 0, size: int = 16) -> Encoder:
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((40, size)).astype(np.float32)
    return Encoder(table, rng.standard_normal((size, size)).astype(np.float32), activation)


def bags(n: int, seed: int = 1) -> sp.csr_array:
    return sp.random_array((n, 40), density=0.2, format="csr", dtype=np.float32, rng=np.random.default_rng(seed))


def tensor(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("activation", ["relu", "gelu", "none"])
def test_embeddings_and_classifiers_have_length_one(activation: Activation) -> None:
    own, rows = encoder(activation), bags(60)
    kept = np.diff(rows.indptr) > 0
    middle = own.intermediate(rows)
    vectors = label_vectors(own, middle, np.full(middle.shape, 0.3, np.float32))
    for made in (middle, own.final(middle), vectors):
        np.testing.assert_allclose(np.linalg.norm(made[kept], axis=1), 1, rtol=1e-5)
    assert not own.intermediate(sp.csr_array((2, 40), dtype=np.float32)).any(), "nothing stays nothing"


def test_without_eta_a_classifier_is_the_embedding_of_the_label() -> None:
    own = encoder()
    middle = own.intermediate(bags(30))
    np.testing.assert_allclose(label_vectors(own, middle, np.zeros_like(middle)), own.final(middle), atol=1e-6)


def test_the_same_text_as_row_and_as_label_has_cosine_one() -> None:
    rows = bags(10, seed=3)
    first, second = encoder().encode(rows), encoder().encode(rows.copy())
    kept = np.diff(rows.indptr) > 0
    np.testing.assert_allclose((first * second).sum(axis=1)[kept], 1, rtol=1e-5)


@pytest.mark.parametrize(("c", "d"), [MODULE_ONE, MODULE_THREE])
def test_the_likelihood_has_the_stated_range_inverse_and_slopes(c: float, d: float) -> None:
    v = np.linspace(-1, 1, 201)
    p = np.exp(-positive_loss(tensor(v.tolist()), c, d).detach().numpy())
    assert (p > 0).all()
    assert p.max() <= c + 1e-12
    np.testing.assert_allclose(1 + np.log(p / c) / d, v, atol=1e-9)
    q = np.exp(-negative_loss(tensor(v.tolist()), c, d).detach().numpy())
    np.testing.assert_allclose(p + q, 1, rtol=1e-9)
    cosines = tensor([-1.0, 0.0, 1.0])
    (up,) = torch.autograd.grad(positive_loss(cosines, c, d).sum(), cosines)
    np.testing.assert_allclose(up.numpy(), -d)
    (down,) = torch.autograd.grad(negative_loss(cosines, c, d).sum(), cosines)
    assert float(down[2]) == pytest.approx(d * c / (1 - c))
    assert float(down.max()) == float(down[2])


def test_lemma_1_bounds_what_a_near_classifier_changes() -> None:
    rng = np.random.default_rng(0)
    for c, d in (MODULE_ONE, MODULE_THREE):
        x, z = (unit_rows(rng.standard_normal((2000, 8)).astype(np.float32)).astype(np.float64) for _ in range(2))
        w = z + rng.uniform(0, 0.5, (2000, 1)) * rng.standard_normal((2000, 8))
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        loss = c - c * np.exp(d * ((z * w).sum(axis=1) - 1))
        bound = np.sqrt(2 * math.exp(2 * d) / (c * d) * np.maximum(loss, 0))
        assert (np.abs((x * w).sum(axis=1) - (x * z).sum(axis=1)) <= bound + 1e-6).all()


def test_the_surrogates_bound_the_error_of_the_ranking() -> None:
    """Loss of precision at k <= ramp loss with margin ln(4c)/d <= contrastive loss / ln(4c), for c > 1/4."""
    rng = np.random.default_rng(0)
    for c, d in (MODULE_ONE, MODULE_THREE):
        scale, margin = math.log(4 * c), math.log(4 * c) / d
        for _ in range(2000):
            n, n_true = 12, int(rng.integers(1, 6))
            v, k = rng.uniform(-1, 1, n), int(rng.integers(1, n_true + 1))
            true, wrong = np.sort(v[:n_true])[::-1], np.sort(v[n_true:])[::-1]
            ranked = np.argsort(-v, kind="stable")[:k]
            error = (ranked >= n_true).sum()
            ramp = np.clip((wrong[:k] - true[:k][::-1]) / margin + 1, 0, None).sum()
            assert error <= ramp + 1e-9
            positive = np.log(1 / c) + d * (1 - true[:k])
            negative = -np.log1p(-c * np.exp(d * (wrong[:k] - 1)))
            assert error <= (positive.sum() + negative.sum()) / scale + 1e-9


def test_the_hardest_negatives_are_the_nearest_rows_that_are_not_the_labels_own() -> None:
    rng = np.random.default_rng(0)
    n = 300
    labels, rows = (unit_rows(rng.standard_normal((n, 6)).astype(np.float32)) for _ in range(2))
    Y = sp.random_array((1000, 80), density=0.05, format="csr", dtype=np.float32, rng=rng)
    numbers, ids = rng.integers(0, 1000, n), rng.integers(0, 80, n)
    is_positive = pairs_of_batch(Y, numbers, ids)
    assert np.array_equal(is_positive.toarray() > 0, (Y.toarray()[numbers][:, ids] > 0).T)
    found = hardest_in_batch(labels, rows, is_positive, 4)
    cosines = np.where(is_positive.toarray() > 0, -np.inf, labels @ rows.T)
    assert np.array_equal(found, np.argsort(-cosines, axis=1, kind="stable")[:, :4])
    order = rng.permutation(n)
    turned = hardest_in_batch(labels[order], rows, is_positive[order].tocsr(), 4)
    assert np.array_equal(turned, found[order]), "another order of the labels gives the same negatives in that order"
    everything = sp.csr_array(np.ones((n, n), np.float32))
    assert (hardest_in_batch(labels, rows, everything, 2) == NO_LABEL).all()


def test_rows_of_the_index_that_carry_the_label_are_passed_over() -> None:
    rows = unit_rows(np.array([[1, 0], [1, 0.1], [1, 0.5], [0, 1]], np.float32))
    Y = sp.csr_array(np.array([[1, 0], [0, 0], [1, 0], [0, 0], [1, 0]], np.float32))
    labels = unit_rows(np.array([[1, 0], [0, 1]], np.float32))
    found = nearest_wrong_rows(labels, rows, np.array([0, 2, 1, 3]), Y, np.array([0, 1]))
    assert found.tolist() == [1, 3]


def test_tokens_become_bags_of_length_one_and_stay_as_they_are() -> None:
    tokens = TokenRows(np.array([4, 1, 4, 2], np.int32), np.array([0, 3, 3, 4]), 6)
    rows = bag_of_tokens(tokens)
    expected = np.zeros((3, 6))
    expected[0, [1, 4]], expected[2, 2] = np.array([1, 2]) / math.sqrt(5), 1
    np.testing.assert_allclose(rows.toarray(), expected, rtol=1e-6)
    assert tokens.offsets.tolist() == [0, 3, 3, 4]
    assert tokens[np.array([2, 0])].ids.tolist() == [2, 4, 1, 4]


def toy(n_labels_trained: int = TOPICS * LABELS_PER_TOPIC, seed: int = 0) -> TrainingData:
    """Each label owns three tokens and its name is one of them; a row has two of the tokens of each of its labels."""
    rng, n_labels = np.random.default_rng(seed), TOPICS * LABELS_PER_TOPIC
    n_tokens = n_labels * TOKENS_PER_LABEL
    X, Y = np.zeros((4 * n_labels, n_tokens), np.float32), np.zeros((4 * n_labels, n_labels), np.float32)
    for row in range(len(X)):
        label = row % n_labels % n_labels_trained
        Y[row, label] = 1
        X[row, label * TOKENS_PER_LABEL + rng.choice(TOKENS_PER_LABEL, 2, replace=False)] = 1
    names = np.zeros((n_labels, n_tokens), np.float32)
    names[np.arange(n_labels), np.arange(n_labels) * TOKENS_PER_LABEL] = 1
    side = LabelSide([f"label {number}" for number in range(n_labels)], sp.csr_array(names))
    return TrainingData.of(sp.csr_array(X), sp.csr_array(Y), labels=side)


SMALL = SiameseXml(
    encoder=SiameseEncoder(dimensions=32, epochs=12, learning_rate=0.03, profile="paper", loss="likelihood"),
    shortlists=Shortlists(near=5, random=3),
    classifiers=Classifiers(epochs=2, loss="likelihood"),
)
SOFTMAX = SiameseXml(
    encoder=SiameseEncoder(dimensions=32, epochs=12, learning_rate=0.03, profile="paper"),
    shortlists=Shortlists(near=5, random=3),
    classifiers=Classifiers(epochs=2),
)


def pairs_of(is_positive: torch.Tensor, weights: torch.Tensor) -> Pairs:
    rows, columns = torch.nonzero(is_positive, as_tuple=True)
    return Pairs(rows, columns, weights[rows, columns])


def test_the_softmax_of_a_positive_leaves_out_the_other_positives_of_its_row() -> None:
    cosines = torch.tensor([[0.5, 0.4, -0.2, 0.1], [0.3, 0.2, 0.1, 0.0]])
    is_positive = torch.tensor([[True, True, False, False], [False, False, False, True]])
    weights = torch.tensor([[0.5, 0.5, 9.0, 9.0], [9.0, 9.0, 9.0, 1.0]])
    expected = 0.0
    for row, own, weight in ((0, 0, 0.5), (0, 1, 0.5), (1, 3, 1.0)):
        wrong = cosines[row][~is_positive[row]]
        expected += weight * float(torch.log1p(torch.exp((wrong - cosines[row, own]) / 0.1).sum()))
    assert float(softmax_loss(cosines, is_positive, pairs_of(is_positive, weights), 0.1)) == pytest.approx(expected)


def test_the_gradient_of_the_softmax_is_that_of_its_differences() -> None:
    rng = torch.Generator().manual_seed(0)
    cosines = torch.rand((6, 9), generator=rng, dtype=torch.float64).mul_(2).sub_(1).requires_grad_()
    is_positive = torch.rand((6, 9), generator=rng) < 0.3
    is_positive[5] = True
    pairs = pairs_of(is_positive, torch.rand((6, 9), generator=rng, dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda own: 3 * softmax_loss(own, is_positive, pairs, 0.2), [cosines])


def test_vectors_are_scaled_to_length_one_and_the_gradient_is_that_of_torch() -> None:
    rng = torch.Generator().manual_seed(0)
    vectors = torch.randn((5, 7), generator=rng, dtype=torch.float64).requires_grad_()
    np.testing.assert_allclose(unit(vectors).detach(), torch.nn.functional.normalize(vectors).detach(), rtol=1e-12)
    assert torch.autograd.gradcheck(unit, [vectors])
    nothing = torch.zeros((1, 7), requires_grad=True)
    scaled = unit(nothing)
    (gradient,) = torch.autograd.grad(scaled.sum(), [nothing])
    assert not scaled.any()
    assert not gradient.any()


def test_a_row_without_negatives_has_no_softmax_loss_and_a_finite_gradient() -> None:
    cosines = torch.tensor([[0.5, 0.4]], requires_grad=True)
    is_positive = torch.ones(1, 2, dtype=torch.bool)
    loss = softmax_loss(cosines, is_positive, pairs_of(is_positive, torch.ones(1, 2)), 0.05)
    (gradient,) = torch.autograd.grad(loss, [cosines])
    assert float(loss.detach()) == pytest.approx(0, abs=1e-6)
    assert torch.equal(gradient, torch.zeros(1, 2))


@pytest.mark.parametrize("options", [SMALL, SOFTMAX], ids=["likelihood", "softmax"])
def test_labels_with_tokens_of_their_own_are_found_after_module_1(options: SiameseXml) -> None:
    data, held_out = toy(), toy(seed=1)
    model = options.model_copy(update={"classifiers": Classifiers(epochs=0), "alpha": 1.0})
    top = model.fit(data, FitContext(rng=np.random.default_rng(0))).predict_topk(held_out.X, 1)
    assert (held_out.Y.toarray()[np.arange(len(top)), top.labels[:, 0]] > 0).mean() > 0.98


def test_shortlists_hold_no_label_of_the_row_and_none_twice() -> None:
    data = toy(n_labels_trained=150)
    lists = prepare(SMALL, data, FitContext()).stage("shortlists").fitted
    own = data.Y.toarray() > 0
    for row, labels in enumerate(lists.negatives):
        kept = labels[labels != NO_LABEL]
        assert len(set(kept.tolist())) == len(kept) > 3
        assert not own[row, kept].any()
        assert (kept < 150).all(), "labels without training rows are not trained, so they are no negatives"


def problem_of(data: TrainingData, eta: np.ndarray | None = None) -> ClassifierProblem:
    staged = prepare(SMALL, data, FitContext(rng=np.random.default_rng(0)))
    first, lists = staged.stage("encoder").fitted, staged.stage("shortlists").fitted
    start = np.zeros(first.labels.shape, np.float32) if eta is None else eta
    rows, known = np.arange(data.Y.shape[0]), np.flatnonzero(first.is_known)
    return ClassifierProblem(
        Classifiers(cut=0, loss="likelihood"), data.X, data.Y, rows, lists.negatives, first.encoder, first.labels,
        known, start, None, None, torch.device("cpu"),
    )  # fmt: skip


def test_module_3_starts_at_the_loss_of_module_1_and_padding_adds_nothing() -> None:
    data = toy()
    problem = problem_of(data)
    examples = np.arange(40)
    lookup = Lookup(problem.tables)
    loss = problem.loss(examples, lookup, torch.Generator())
    vectors = problem.encoder.final(problem.texts)
    rows = problem.encoder.encode(data.X[examples])
    labels, targets = problem._pairs(examples)
    cosines = torch.from_numpy(np.einsum("bd,bsd->bs", rows, vectors[np.maximum(labels, 0)]))
    values = torch.where(
        torch.from_numpy(targets) > 0, positive_loss(cosines, *MODULE_THREE), negative_loss(cosines, *MODULE_THREE)
    )
    expected = values[torch.from_numpy(labels != NO_LABEL)].sum()
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-4)
    padded = problem_of(data)
    padded.negatives = np.concatenate([padded.negatives, np.full((len(padded.negatives), 4), NO_LABEL)], axis=1)
    other = Lookup(padded.tables)
    again = padded.loss(examples, other, torch.Generator())
    assert float(again.detach()) == pytest.approx(float(loss.detach()), rel=1e-6)
    (before,) = torch.autograd.grad(loss, [lookup.leaves["eta"]])
    (after,) = torch.autograd.grad(again, [other.leaves["eta"]])
    touched = np.isin(other.rows["eta"], lookup.rows["eta"])
    np.testing.assert_allclose(after[touched].numpy(), before.numpy(), atol=1e-5)
    assert not after[~touched].any()


def test_labels_that_come_later_are_predicted_at_once(tmp_path: Path) -> None:
    data = toy(n_labels_trained=190)
    assert data.labels is not None
    known, n_tokens = 190, data.X.shape[1]
    side = LabelSide(data.labels.texts[:known], data.labels.X[:known])
    trained = TrainingData.of(data.X, data.Y[:, :known], labels=side)
    fitted = SMALL.fit(trained, FitContext(rng=np.random.default_rng(0)))
    assert isinstance(fitted, Extensible)
    more = fitted.with_labels(LabelSide(data.labels.texts[known:], data.labels.X[known:]))
    assert more.n_labels == 200
    assert more.predict_topk(data.labels.X[known:], 1).labels[:, 0].tolist() == list(range(known, 200))
    more.save(tmp_path)
    again = FittedSiamese.load(tmp_path).predict_topk(data.labels.X[known:], 3)
    assert np.array_equal(again.labels, more.predict_topk(data.labels.X[known:], 3).labels)
    with pytest.raises(ConfigError, match="new labels need their names"):
        fitted.with_labels(LabelSide(["a"]))
    assert n_tokens == fitted.n_features


def test_without_names_it_learns_from_rows_or_says_what_is_missing() -> None:
    nameless = TrainingData.of(toy().X, toy().Y)
    with pytest.raises(ConfigError, match="label_names is required, but the labels have no names"):
        SMALL.model_copy(update={"encoder": SiameseEncoder(label_names="required")}).fit(nameless)
    with pytest.raises(ConfigError, match="needs the word of each of the"):
        SMALL.model_copy(update={"encoder": SiameseEncoder(table="wordllama")}).fit(nameless)


def test_a_graph_finds_nearly_what_an_exact_search_finds() -> None:
    pytest.importorskip("faiss")
    data = toy()
    model = SMALL.model_copy(update={"shortlists": Shortlists(near=5, random=3, exact_below=0), "n_candidates": 20})
    fitted = model.fit(data, FitContext(rng=np.random.default_rng(0)))
    assert isinstance(fitted, FittedSiamese)
    recall = fitted.shortlist_recall(data.X[:200], 5)
    assert recall is not None
    assert recall > 0.95


def test_a_graph_of_labels_finds_hundreds_of_them_and_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    rng = np.random.default_rng(0)
    topics = rng.standard_normal((64, 64))
    vectors, queries, more = (
        unit_rows((topics[rng.integers(0, 64, n)] + rng.standard_normal((n, 64))).astype(np.float32))
        for n in (8192, 32, 5)
    )
    index = LabelIndex.build(vectors, np.arange(len(vectors), dtype=np.int32), 0)
    found, exact = (keys.nearest(queries, 500, Shortlists().width).ids for keys in (index.keys, index.keys.exact()))
    assert np.mean([len(np.intersect1d(*pair)) / 500 for pair in zip(found, exact, strict=True)]) > 0.99
    index.save(tmp_path / "names.safetensors")
    loaded = LabelIndex.load(tmp_path / "names.safetensors", len(vectors), 64, has_graph=True)
    for one, other in ((index, loaded), (index.extended(more), loaded.extended(more))):
        assert np.array_equal(one.nearest(queries, 20, 100), other.nearest(queries, 20, 100))


def test_words_start_with_the_vectors_of_their_tokens() -> None:
    pytest.importorskip("wordllama")
    terms = ["forest", "forests", "tax"]
    table = first_encoder(SiameseEncoder(table="wordllama"), "sparse", 3, 0, terms).table
    np.testing.assert_array_equal(table, WordLlama().fit((), silent).transform(terms))
    assert table[0] @ table[1] > table[0] @ table[2]
    with pytest.raises(ConfigError, match="the word of each of the 3 features"):
        first_encoder(SiameseEncoder(table="wordllama"), "sparse", 3, 0)


def test_a_search_of_no_labels_leaves_the_random_ones() -> None:
    data = toy()
    model = SiameseXml(encoder=SiameseEncoder(epochs=0), shortlists=Shortlists(near=0, random=3))
    found = prepare(model, data, FitContext(rng=np.random.default_rng(0))).stage("shortlists").fitted.negatives
    assert found.shape == (data.Y.shape[0], 3)
    assert (found != NO_LABEL).any()


def test_words_and_classifiers_are_trained_together_from_the_start() -> None:
    """Modules I and III without epochs: all that is learned comes from Module IV."""
    data = toy()
    start = SiameseXml(
        encoder=SiameseEncoder(epochs=0), shortlists=Shortlists(near=0, random=5), classifiers=Classifiers(epochs=0)
    )
    both = start.model_copy(update={"joint_epochs": 5, "joint_learning_rate": 0.01})
    first, last = (model.fit(data, FitContext(rng=np.random.default_rng(0))) for model in (start, both))
    assert not np.array_equal(first.encoder.table, last.encoder.table)
    assert not np.allclose(last.weights, last.encoder.encode(data.labels.X), atol=1e-3), "eta has moved"
    hits = [(model.predict_topk(data.X, 1).labels[:, 0] == data.Y.indices).mean() for model in (first, last)]
    assert hits[1] > max(0.9, hits[0])


def test_modules_3_and_4_end_no_worse_on_dev_rows_than_they_start() -> None:
    data, held_out = toy(), toy(seed=1)
    data = TrainingData.of(data.X, data.Y, dev=(held_out.X, held_out.Y), labels=data.labels)
    seen: list[dict[str, float]] = []
    spoilt = SMALL.model_copy(
        update={"classifiers": Classifiers(epochs=0), "joint_epochs": 2, "joint_learning_rate": 30.0}
    )
    context = FitContext(
        rng=np.random.default_rng(0), report=lambda step, total, metrics=None: seen.append(dict(metrics or {}))
    )
    fitted = spoilt.fit(data, context)
    curve = [metrics["dev_ndcg_at_5"] for metrics in seen if "dev_ndcg_at_5" in metrics]
    assert len(curve) == 3
    assert max(curve[1:]) < curve[0], "such a learning rate spoils the model"
    first = prepare(spoilt, data, FitContext(rng=np.random.default_rng(0))).stage("encoder").fitted
    assert np.array_equal(fitted.encoder.table, first.encoder.table)
    assert seen[-1]["mixed_dev_ndcg_at_5"] > 0.9, "the dev rows' metric of the ranking that the model gives"

"""The report of a run: one page that says what happened, runs nothing foreign, and asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xcore.artifacts import Artifact, ArtifactRef, Manifest
from xcore.artifacts.manifest import FileRecord
from xcore.components import silent
from xcore.data.dataset import Dataset
from xcore.data.ingest import ingest
from xcore.data.source import Source
from xcore.errors import ConfigError
from xcore.metrics import evaluate
from xcore.numeric.matrices import NO_LABEL, TopK
from xcore.report import render_report
from xcore.report.beside import Beside
from xcore.report.charts import Axis, bars, lines
from xcore.report.data import LabelsOfRows
from xcore.report.examples import JudgedRows
from xcore.report.html import element, markup
from xcore.report.imputation import ConfidenceBins, wilson_interval
from xcore.report.label_tables import LabelScores
from xcore.report.rows import in_step, some_rows
from xcore.report.wording import count, n_bytes, number, percent, plain, seconds, shorten

HOSTILE = "<script>alert('x')</script>"
BREAKOUT = "\"'><img src=x onerror=alert(1)>\u202e\x01"
NAMES = {"a": HOSTILE, "b": BREAKOUT, "c": "third"}
TRAIN = [
    {"id": "t0", "text": "red apple", "labels": ["a"]},
    {"id": "t1", "text": "green pear", "labels": ["a", "b"]},
    {"id": "t2", "text": "blue plum", "labels": ["b"]},
    {"id": "t3", "text": "grey", "labels": ["no such label"]},
]
TEST = [
    {"id": "all", "text": f"both {HOSTILE}", "labels": ["a", "b"]},
    {"id": "some", "text": "half </p></body>", "labels": ["a", "c"]},
    {"id": BREAKOUT, "text": "word " * 5000, "labels": ["c"]},
    {"id": "unlabelled", "text": "nothing", "labels": []},
]
OFFERED = TopK(
    np.array([[0, 1], [0, 1], [1, NO_LABEL], [0, 1]], np.int32),
    np.array([[0.9, 0.8], [0.7, 0.6], [0.5, -np.inf], [0.4, 0.3]], np.float32),
)
MODEL = {"kind": "ova", "ridge": 0.1, "note": HOSTILE, "nothing": None}
SECTIONS = [
    *("run", "data", "metrics", "deciles", "thresholds", "mistakes", "labels", "examples", "cost", "lineage"),
]


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Workbench:
    """Makes artifacts as the steps of a pipeline would, without running models."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lineage: list[Artifact] = []

    def add(
        self,
        kind: str,
        fill: Callable[[Path], Mapping[str, Any]],
        options: Mapping[str, Any],
        sources: Sequence[Path] = (),
        commit: str | None = "0123456789abcdef0123",
        role: str = "",
    ) -> Path:
        """The last two artifacts are the inputs of a new one, each under its kind or the role that was asked for."""
        directory = self.root / (role or kind)
        directory.mkdir()
        counts = fill(directory)
        record = {"sha256": "ab" * 32}
        manifest = Manifest(
            kind=kind,
            id=f"{len(self.lineage):016x}",
            schema_version=1,
            inputs={artifact.directory.name: artifact.ref for artifact in self.lineage[-2:]},
            sources={str(path): FileRecord(n_bytes=path.stat().st_size, **record) for path in sources},
            component=f"make {kind}",
            options=options,
            seed=7,
            code={},
            files={path.name: FileRecord(n_bytes=path.stat().st_size, **record) for path in directory.iterdir()},
            counts=counts,
            seconds=61.5,
            peak_memory_bytes=123_000_000,
            created=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            versions={"python": "3.11", "numpy": "2.4"},
            git_commit=commit,
        )
        self.lineage.append(Artifact(manifest, directory))
        return directory

    def dataset(
        self, test: Sequence[Mapping[str, Any]] = TEST, train: Sequence[Mapping[str, Any]] = TRAIN, **more: Any
    ) -> Dataset:
        """The rows above, read from files by the real reader; one row is set aside."""
        folder = self.root / "fruit"
        folder.mkdir()
        labels = [{"id": key, "name": name} for key, name in NAMES.items()]
        fields = {
            "reader": {"kind": "jsonl", "id": "id", "text": "text"},
            "train": [write_lines(folder / "train.jsonl", train)],
            "test": [write_lines(folder / "test.jsonl", test)],
            "labels": write_lines(folder / "labels.jsonl", labels),
            "on_bad_row": "quarantine",
            "max_bad_share": 1,
            **more,
        }
        source = Source.model_validate(fields)
        directory = self.add(
            "dataset",
            lambda folder: ingest(source, folder, np.random.default_rng(0), silent),
            source.options(),
            source.files(),
        )
        return Dataset(directory)

    def imputed(self, quality: Mapping[str, float], details: Mapping[str, Any]) -> None:
        def fill(directory: Path) -> Mapping[str, Any]:
            confidence = pa.array([[1.0], [0.25], []], pa.list_(pa.float32()))
            table = {"labels": pa.array([[0], [0], []], pa.list_(pa.int32())), "confidence": confidence}
            pq.write_table(pa.table(table), directory / "labels.parquet")
            (directory / "quality.json").write_text(json.dumps(quality))
            (directory / "details.json").write_text(json.dumps(details))
            return {"imputed_positives": 2, "truth_precision": 0.5}

        self.add("imputed", fill, {"kind": "eagle", "step": 0.1})

    def results(self, dataset: Dataset, offered: TopK = OFFERED, ks: Sequence[int] = (1, 2), n: int = 50) -> None:
        """A model, its predictions and their real evaluation."""
        self.add("model", lambda folder: (folder / "model.json").write_text("{}") and {}, MODEL)

        def predict(directory: Path) -> Mapping[str, Any]:
            pq.write_table(offered.to_table(), directory / "predictions.parquet")
            return {"rows": len(offered)}

        self.add("predictions", predict, {"model": MODEL, "split": "test", "k": offered.k})

        def judge(directory: Path) -> Mapping[str, Any]:
            result = evaluate(
                offered,
                dataset.Y("test"),
                ks=ks,
                train_counts=dataset.label_table()["train_count"].to_numpy(),
                n_train=dataset.n_rows("train"),
                n_bootstrap=n,
                rng=np.random.default_rng(0),
            )
            summary = {"split": "test", "metrics": result.metrics, "intervals": result.intervals}
            (directory / "metrics.json").write_text(json.dumps(summary))
            pq.write_table(result.per_label, directory / "per_label.parquet")
            pq.write_table(result.per_decile, directory / "per_decile.parquet")
            return {"rows": result.n_rows, "rows_without_labels": result.n_unlabelled}

        self.add("evaluation", judge, {"split": "test", "ks": list(ks), "n_bootstrap": n})

    def page(self, beside: Beside | None = None) -> str:
        target = self.root / "report.html"
        render_report(self.lineage, target, beside)
        return target.read_text(encoding="utf-8")


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


class Page(HTMLParser):
    """Elements, attributes and visible text of a page; fails where elements do not nest."""

    VOID = ("meta", "rect", "line", "polyline", "circle")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.inside: dict[str, str] = {"style": "", "script": ""}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        assert tag in self.VOID

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        place = self._open[-1] if self._open else ""
        if place in self.inside:
            self.inside[place] += data
        else:
            self.texts.append(data)

    def values(self, name: str) -> list[str]:
        return [value for _, key, value in self.attributes if key == name]

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))


def test_the_median_number_of_labels_is_that_of_the_middle_row() -> None:
    assert LabelsOfRows(np.array([1, 2, 3])).median == 1  # 0, 1, 1, 2, 2, 2
    assert LabelsOfRows(np.array([1, 1, 3])).median == 2  # 0, 1, 2, 2, 2


def test_the_page_has_all_parts_and_its_links_lead_somewhere(bench: Workbench) -> None:
    bench.results(bench.dataset())
    page = Page(bench.page())
    assert [value for tag, name, value in page.attributes if (tag, name) == ("section", "id")] == SECTIONS
    anchors = page.values("id")
    assert len(anchors) == len(set(anchors))
    assert set(page.values("href")) <= {f"#{anchor}" for anchor in anchors}
    assert {f"#{key}" for key in SECTIONS} <= set(page.values("href"))
    assert {f"{artifact.ref.kind}-{artifact.ref.id}" for artifact in bench.lineage} <= set(anchors)


def test_the_page_tells_what_was_run_on_what_and_what_came_out(bench: Workbench) -> None:
    bench.results(bench.dataset())
    text = Page(bench.page()).text
    assert "fruit · ova" in text
    assert "3 rows to train on, 4 test rows, 3 labels" in text
    assert "ova (ridge 0.1," in text
    assert "Precision @ 1 50.00%" in text  # two of four first places
    assert "Precision @ 2 37.50%" in text  # three of eight places
    assert "Rows set aside, for reasons given under Data: 1." in text
    assert "'no such label'" in text
    assert "Labels without training rows, which no model can find: 1." in text
    assert "Test rows without a true label, which score 0: 1." in text
    assert "python 3.11 numpy 2.4" in text
    assert "Commit 0123456789ab Finished 2026-01-02 03:04:05 UTC" in text
    assert "1 min 2 s" in text
    assert "123.0 MB" in text
    assert "4 min 6 s in all" in text  # four steps


def test_names_and_texts_are_shown_as_text_and_never_become_markup(bench: Workbench) -> None:
    bench.results(bench.dataset())
    raw = bench.page()
    page = Page(raw)
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "\x01" not in raw
    assert HOSTILE in page.text
    assert "\"'><img src=x onerror=alert(1)>" in page.text
    assert f"both {HOSTILE}" in page.text
    assert "half </p></body>" in page.text


def test_nothing_on_the_page_refers_to_anything_outside_it(bench: Workbench) -> None:
    bench.results(bench.dataset())
    page = Page(bench.page())
    assert {tag for tag in page.tags if tag in ("img", "link", "iframe", "object", "embed", "base", "form")} == set()
    assert [name for _, name, _ in page.attributes if name in ("src", "srcset", "action", "data", "style")] == []
    assert all(link.startswith("#") for link in [*page.values("href"), *page.values("xlink:href")])
    own = page.inside["style"] + page.inside["script"]
    assert not re.search(r"url\(|@import|\bimport\b|https?:|//|fetch|XMLHttpRequest|WebSocket|sendBeacon", own)


def test_the_policy_of_the_page_forbids_all_but_its_own_style_and_script(bench: Workbench) -> None:
    bench.results(bench.dataset())
    page = Page(bench.page())
    policy = next(value for value in page.values("content") if "default-src" in value)

    def digest(content: str) -> str:
        return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()

    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest(page.inside['script'])}'" in policy
    assert f"style-src 'sha256-{digest(page.inside['style'])}'" in policy
    assert "unsafe" not in policy


def test_the_same_artifacts_give_the_same_bytes(bench: Workbench) -> None:
    bench.results(bench.dataset())
    assert bench.page() == bench.page()


def test_rows_are_shown_by_how_much_of_them_was_found(bench: Workbench) -> None:
    bench.results(bench.dataset())
    text = Page(bench.page()).text
    assert "Everything right: 33.3% (1 of 3 rows)" in text
    assert "Partly right: 33.3% (1 of 3 rows)" in text
    assert "Everything wrong: 33.3% (1 of 3 rows)" in text
    right, partly, wrong = (
        text.index(f"{name}: 33.3%") for name in ("Everything right", "Partly right", "Everything wrong")
    )
    assert right < text.index("Row all") < partly < text.index("Row some") < wrong
    assert "Row unlabelled" not in text
    assert "True but not offered: third" in text


def test_the_models_of_an_ensemble_are_shown_side_by_side(bench: Workbench) -> None:
    data = bench.dataset()

    def predict(directory: Path) -> Mapping[str, Any]:
        other = TopK(OFFERED.labels[:, ::-1].copy(), OFFERED.scores[:, ::-1].copy())
        pq.write_table(other.to_table(), directory / "predictions.parquet")
        return {}

    bench.add("predictions", predict, {"model": {"kind": "memory"}}, role="member-0")
    bench.results(data)
    page = bench.page()
    start = page.index('<section id="members">')
    part = page[start : page.index("</section>", start)]
    assert '<th scope="col">True labels</th>' in part
    assert "memory (member-0)" in part
    assert part.count("<tr>") == 1 + 3, "a row without a true label is not shown"
    lists = re.findall("<ol>.*?</ol>", part)
    assert [len(re.findall("✓", each)) for each in lists[3:6]] == [0, 1, 1], "of 'some', one of two true labels"
    assert [each.index("&lt;img") < each.index("&lt;script") for each in lists[4:6]] == [False, True]
    assert HOSTILE not in part


def test_labels_that_are_true_nowhere_and_metrics_without_a_value_do_no_harm(bench: Workbench) -> None:
    bench.results(
        bench.dataset([{"id": "x", "text": "y", "labels": ["c"]}]), TopK(OFFERED.labels[2:3], OFFERED.scores[2:3]), n=0
    )
    metrics = json.loads((bench.lineage[-1].directory / "metrics.json").read_text())
    assert math.isnan(metrics["metrics"]["head/recall_at_1"])
    text = Page(bench.page()).text
    assert not re.search(r"\bnan\b", text, re.IGNORECASE)
    assert "no interval" in text
    assert "–" in text


def test_a_dataset_without_a_label_in_train_has_a_report_too(bench: Workbench) -> None:
    bench.results(bench.dataset(train=[{"id": "t", "text": "bare", "labels": []}]))
    page = Page(bench.page())
    assert "deciles" not in page.values("id")
    assert "Labels without training rows, which no model can find: 3." in page.text


def test_everything_is_right_where_the_places_hold_only_true_labels_or_all_of_them() -> None:
    n_true, n_hits = np.array([1, 1, 3, 3, 2, 0, 9]), np.array([1, 0, 2, 1, 2, 0, 0])
    classes = JudgedRows(n_true, n_hits, np.zeros(7, np.float32)).classes(2)
    assert {name: rows.tolist() for name, rows in classes.items()} == {
        "Everything right": [0, 2, 4],
        "Partly right": [3],
        "Everything wrong": [1, 6],
    }


def test_the_surest_mistakes_have_the_highest_scores() -> None:
    scores = np.array([0.1, 0.9, 0.5, 0.9, 0.7, 0.8], np.float32)
    nothing = np.zeros(6, np.int64)
    assert JudgedRows(nothing, nothing, scores).surest_mistakes(np.array([0, 2, 3, 4, 5])).tolist() == [3, 4, 5]


def test_source_that_was_not_committed_is_pointed_out(bench: Workbench) -> None:
    bench.results(bench.dataset())
    last = bench.lineage[-1]
    changed = last.manifest.model_copy(update={"git_commit": "f" * 40 + "+changes"})
    bench.lineage[-1] = Artifact(changed, last.directory)
    text = Page(bench.page()).text
    assert "Commit 0123456789ab, ffffffffffff+changes Finished" in text
    assert "Some steps were run from source that was not committed." in text


def test_a_run_without_imputation_has_no_such_part(bench: Workbench) -> None:
    bench.results(bench.dataset())
    page = Page(bench.page())
    assert "imputation" not in page.values("id")
    assert "imputed" not in page.text


def test_imputed_labels_are_judged_against_the_truth_where_it_is_known(bench: Workbench) -> None:
    dataset = bench.dataset()
    bench.imputed({"precision": 1.0, "recall": 0.5, "odd": math.nan}, {"mean_iterations": 3.5})
    bench.results(dataset)
    page = Page(bench.page())
    assert "imputation" in page.values("id")
    assert "eagle imputed from groups: 100.0% of them are true, and 50.0% of the true ones" in page.text
    assert "Reliability" in page.text
    assert "imputed labels: 25%, 100%" in page.text  # confidence 0.25, and it is true
    assert "mean iterations 3.5" in page.text


def test_without_the_truth_the_page_says_so_and_shows_the_trials_on_held_out_groups(bench: Workbench) -> None:
    reader = {"kind": "jsonl", "id": "id", "text": "text", "group": "id"}
    dataset = bench.dataset(reader=reader, row_labels="group")
    assert dataset.Y("train").nnz == 0
    imputers = [{"kind": "baseline"}, {"kind": "eagle", "step": 0.1, "note": HOSTILE}]
    trials = [{"imputer": each, "group_agreement": 0.5 + 0.1 * i} for i, each in enumerate(imputers)]
    bench.imputed({}, {"trials": trials, "chosen": {"imputer": imputers[1], "mean_confidence": 0.875}})
    bench.results(dataset)
    page = Page(bench.page())
    assert "the rows' own labels are not known" in page.text
    assert "Reliability" not in page.text
    assert "Confidence of 2 imputed labels" in page.text
    assert f"eagle (step 0.1, note {HOSTILE}) 60.00 chosen" in page.text
    assert "0.875" in page.text
    assert page.tags.count("script") == 1


def test_the_page_stays_small_whatever_is_in_the_manifests(bench: Workbench) -> None:
    rows = [{"id": f"{i}" * 200, "text": "long " * 2000, "labels": ["a", "b", "c"]} for i in range(300)]
    ks = list(range(1, 61))
    offered = TopK(np.tile(np.array([0, 1] + [NO_LABEL] * 58, np.int32), (300, 1)), np.zeros((300, 60), np.float32))
    bench.results(bench.dataset(rows), offered, ks)
    last = bench.lineage[-1]
    many = {"files": [f"file {i}" for i in range(10_000)], "words": "x" * 100_000}
    sources = {f"part-{i}": FileRecord(sha256="ab" * 32, n_bytes=1) for i in range(5000)}
    first = bench.lineage[0]
    bench.lineage[0] = Artifact(first.manifest.model_copy(update={"sources": sources}), first.directory)
    bench.lineage[-1] = Artifact(
        last.manifest.model_copy(update={"options": {**last.manifest.options, **many}}), last.directory
    )
    page = bench.page()
    assert len(page) < 250_000
    assert "(10,000 in all)" in page
    assert "4,980 more files" in page


def test_a_lineage_that_lacks_a_step_is_refused_by_name(bench: Workbench) -> None:
    bench.dataset()
    with pytest.raises(ConfigError, match=r"got dataset \(no model, predictions, evaluation\)"):
        bench.page()


def test_confidences_are_counted_across_files_that_are_cut_differently(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    claimed = [rng.permutation(6)[: rng.integers(0, 4)].tolist() for _ in range(50)]
    confidence = [[float(rng.integers(1, 17)) / 16 for _ in labels] for labels in claimed]
    truth = [rng.permutation(6)[: rng.integers(0, 4)].tolist() for _ in range(50)]
    lists_of = {
        "labels": pa.array(claimed, pa.list_(pa.int32())),
        "confidence": pa.array(confidence, pa.list_(pa.float32())),
    }
    pq.write_table(pa.table(lists_of), tmp_path / "labels.parquet", row_group_size=7)
    pq.write_table(
        pa.table({"labels": pa.array(truth, pa.list_(pa.int32()))}), tmp_path / "t.parquet", row_group_size=11
    )
    bins = ConfidenceBins.of(tmp_path, tmp_path / "t.parquet")
    n, true = [0] * 10, [0] * 10
    for labels, values, right in zip(claimed, confidence, truth, strict=True):
        for label, value in zip(labels, values, strict=True):
            n[min(int(value * 10), 9)] += 1
            true[min(int(value * 10), 9)] += label in right
    assert bins.n.tolist() == n
    assert bins.true is not None
    assert bins.true.tolist() == true
    assert bins.confidence.sum() == pytest.approx(sum(map(sum, confidence)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=6), st.lists(st.integers(0, 5), max_size=6))
def test_files_go_in_step_however_they_are_cut(first: list[int], second: list[int]) -> None:
    rows = min(sum(first), sum(second))

    def cut(sizes: list[int]) -> Any:
        ends = np.cumsum([0, *sizes])
        return iter([pa.record_batch({"n": list(range(start, end))}) for start, end in pairwise(ends)])

    seen = [(a.column("n").to_pylist(), b.column("n").to_pylist()) for a, b in in_step(cut(first), cut(second))]
    assert all(one == other for one, other in seen)
    assert [row for one, _ in seen for row in one] == list(range(rows))


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(0, 999), max_size=8), st.integers(1, 400))
def test_a_few_rows_are_found_by_position(tmp_path_factory: pytest.TempPathFactory, rows: set[int], size: int) -> None:
    path = tmp_path_factory.mktemp("rows") / "t.parquet"
    pq.write_table(pa.table({"n": range(1000), "other": range(1000)}), path, row_group_size=size)
    assert some_rows(path, sorted(rows), ["n"]) == {row: {"n": row} for row in rows}


def test_labels_are_ranked_by_f1_and_none_is_both_best_and_worst() -> None:
    scores = LabelScores(
        in_train=np.array([9, 9, 9, 9, 9]),
        true=np.array([4, 4, 2, 0, 10]),
        offered=np.array([4, 4, 0, 3, 10]),
        hits=np.array([4, 2, 0, 0, 5]),
    )
    assert scores.support == 1
    assert scores.f1.tolist() == [1.0, 0.5, 0.0, 0.0, 0.5]
    assert scores.best().tolist() == [0, 4]
    assert scores.worst().tolist() == [2, 1]
    assert scores.most_missed().tolist() == [4, 1, 2]


def test_only_labels_with_support_are_ranked_where_there_are_enough_of_them() -> None:
    true = np.array([25] * 40 + [1] * 100)
    scores = LabelScores(true, true, true, np.minimum(true, np.arange(140)))
    assert scores.support == 20
    assert len(scores.judged) == 40
    assert scores.worst().tolist() == list(range(15))


def test_wilson_intervals_are_those_of_the_textbook() -> None:
    # Newcombe 1998, table I, method 3 (score): 81/263, 15/148, 0/20, 1/29
    for hits, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        assert wilson_interval(hits, n) == pytest.approx((low, high), abs=5e-5)


@settings(max_examples=40, deadline=None)
@given(st.text())
def test_any_text_survives_as_text(text: str) -> None:
    page = Page(element("p", text, title=text))
    printable = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", text)
    unified = printable.replace("\r\n", "\n").replace("\r", "\n")
    assert "".join(page.texts).replace("\r\n", "\n").replace("\r", "\n") == unified
    assert page.tags == ["p"]
    markup(text).encode("utf-8")


def test_charts_leave_missing_values_out() -> None:
    drawn = bars("t", ["x", "y"], {"one": [0.5, math.nan], "two": [math.nan, math.nan]}, x="", y="")
    assert drawn.count('class="fill0"') == 2  # the bar, and its colour in the legend
    assert "nan" not in drawn
    assert "nan" not in bars("t", ["x"], {"one": [math.nan]}, x="", y="")


def test_a_bar_is_as_high_as_its_value() -> None:
    drawn = bars("t", ["x", "y"], {"one": [0.8, 0.2]}, x="", y="", intervals={"one": [(0.7, 0.8), None]})
    heights = [
        float(value) for value in re.findall(r'<rect width="[\d.]+" class="fill0"[^>]*? height="([\d.]+)"', drawn)
    ]
    assert heights == [pytest.approx(200), pytest.approx(50)]
    assert drawn.count("whisker") == 1


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(1.001, 1e6), st.booleans())
def test_axes_have_a_few_ticks_between_their_ends(low: float, factor: float, log: bool) -> None:
    axis = Axis("", low, low * factor, log=log)
    ticks = axis.ticks()
    assert all(low * (1 - 1e-6) <= tick <= low * factor * (1 + 1e-6) for tick in ticks)
    assert len(ticks) <= 14
    assert len(ticks) >= (2 if log else 3)
    places = [axis.place(tick) for tick in ticks]
    assert places == sorted(places)
    assert all(0 <= place <= 1 for place in places)
    assert "nan" not in lines("", {"a": [(low, low)]}, x=axis, y=axis)


def test_numbers_read_as_people_write_them() -> None:
    assert [count(1234567), count(None), percent(0.12345), percent(math.nan), number(0.000123456)] == [
        "1,234,567", "–", "12.35", "–", "0.0001235",
    ]  # fmt: skip
    assert [seconds(0.5), seconds(59.94), seconds(61), seconds(3725)] == ["0.50 s", "59.9 s", "1 min 1 s", "1 h 2 min"]
    assert [n_bytes(999), n_bytes(1_500), n_bytes(250_000_000)] == ["999 bytes", "1.5 kB", "250.0 MB"]
    assert [plain(True), plain(None), plain([1, 2]), plain(3.0)] == ["yes", "none", "1, 2", "3"]
    assert shorten("a  b\nc", 10) == "a b c"
    assert shorten("x" * 50, 10) == "x" * 9 + "…"
    assert shorten(" " * 1000 + "x", 10).endswith("…")


def test_the_page_is_named_by_the_experiment_and_not_by_the_folder_of_the_files(bench: Workbench) -> None:
    bench.results(bench.dataset())
    page = bench.page(Beside(name="laws"))
    assert "<title>laws · ova</title>" in page
    assert "<h1>laws · ova</h1>" in page
    assert "fruit ·" not in page


def test_two_steps_of_one_kind_are_both_told_and_the_nearest_model_is_the_runs(bench: Workbench) -> None:
    dataset = bench.dataset()
    bench.add("model", lambda folder: (folder / "model.json").write_text("{}") and {}, {"kind": "owl"}, role="teacher")
    bench.results(dataset)
    page = Page(bench.page())
    assert "fruit · ova" in page.text
    assert page.text.count("make model (teacher)") == 3  # options, cost, lineage
    assert "make model (model) 1 min 2 s" in page.text


def test_an_artifact_that_is_named_but_not_given_is_still_named(bench: Workbench) -> None:
    bench.results(bench.dataset())
    first = bench.lineage[1]
    inputs = {"dataset": ArtifactRef(kind="dataset", id="feedfeedfeedfeed")}
    bench.lineage[1] = Artifact(
        first.manifest.model_copy(update={"inputs": inputs, "git_commit": None}), first.directory
    )
    page = Page(bench.page())
    assert "dataset/feedfeedfeedfeed" in page.text
    assert "#dataset-feedfeedfeedfeed" not in page.values("href")
    assert "not in git" in page.text

"""From files to a dataset on disk: check and stage all rows, decide splits, labels and groups, then write."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xcore.components import Report
from xcore.data.dataset import FORMAT
from xcore.data.duplicates import SameRow, same_rows
from xcore.data.feature_files import feature_schema
from xcore.data.holdout import held_out
from xcore.data.label_index import LabelIndex, read_label_table
from xcore.data.quarantine import Quarantine
from xcore.data.readers.base import SPLITS, Split, Wanted
from xcore.data.row_groups import IngestedGroups, members_by_column
from xcore.data.source import Source
from xcore.data.splits import Plan, RowLabels, write_split
from xcore.data.staging import Checks, StagedSplit, stage_split
from xcore.data.train_groups import TrainGroups
from xcore.data.writing import RowWriter, write_table
from xcore.errors import ConfigError, InputError, Place
from xcore.memory import need_memory
from xcore.numeric.matrices import Int64, list_parts

BLOCK_BYTES = 16 << 20
BYTES_PER_LABEL = 100  # counts by split, and the label table
DROPPED = -1


def ingest(
    source: Source, directory: Path, rng: np.random.Generator, report: Report, block_bytes: int = BLOCK_BYTES
) -> dict[str, Any]:
    """Write the dataset that `source` names into an existing empty directory.

    Parameters
    ----------
    source : Source
        The files and their format.
    directory : Path
        Receives the files that `Dataset` opens; after an error it is empty again.
    rng : Generator
        Draws the holdout, if any.
    report : Report
        Progress, in files read and splits written.
    block_bytes : int
        Size of the blocks in which input is read. Changes memory and speed, never the result.

    Returns
    -------
    dict
        Counts for the manifest: rows, labels, features, non-zeros, and all that was set aside, with the reason.

    Notes
    -----
    Cost O(bytes). Memory is a few blocks or one row group, plus 16 bytes per row (fingerprints), the label table and
    the groups. Rows go over the disk twice, because label order, feature base and holdout are known only at the end.
    """
    if any(directory.iterdir()):
        raise ConfigError(f"{directory} must be empty to receive a dataset, but it has files")
    try:
        return _Ingestion(source, directory, report, block_bytes).run(rng)
    except BaseException:
        for path in directory.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise


class _Ingestion:
    """One run of `ingest`, step by step."""

    def __init__(self, source: Source, directory: Path, report: Report, block_bytes: int) -> None:
        self.source, self.directory, self.report, self.block_bytes = source, directory, report, block_bytes
        self.parts = source.parts()
        self.quarantine = Quarantine(
            directory / "quarantine.parquet" if source.on_bad_row == "quarantine" else None, source.max_bad_share
        )
        self.groups = TrainGroups(source) if source.has_groups else None
        table = None if source.labels is None else read_label_table(source.labels)
        self.index = LabelIndex(table, source.reader.integer_labels)
        self.steps, self.rows_read = sum(map(len, self.parts.values())) + 1, 0
        self.unlabelled = 0  # train rows

    def run(self, rng: np.random.Generator) -> dict[str, Any]:
        staging = self.directory / "staging"
        staging.mkdir()
        self.shape = self.source.reader.shape([part for parts in self.parts.values() for part in parts])
        self._check_label_features()
        need_memory(
            BYTES_PER_LABEL * (self.shape.n_labels or 0),
            f"a table of {self.shape.n_labels or 0:,} labels, as the files say",
            "Check the number of labels in the header.",
        )
        self.staged = {split: self._stage(split, staging) for split in SPLITS if self.parts[split]}
        same = self._resolve_duplicates()
        if self.groups is not None:
            self.groups.match(self.staged["train"], self._kept_in_train(), self.quarantine)
            self._leave_out_unlabelled(self.groups)
        self._resolve_holdout(rng)
        groups = self._labelled_groups()
        table = self.groups.table if self.groups is not None else None
        self.quarantine.check(self.rows_read + (len(table.ids) if table is not None else 0))
        self._resolve_labels(groups)
        counts = self._write(groups)
        self.quarantine.close()
        shutil.rmtree(staging)
        self.report(self.steps, self.steps, {"rows": float(self.rows_read)})
        quarantined = self.quarantine.counts() if self.source.on_bad_row == "quarantine" else {"rows": 0, "reasons": {}}
        return counts | {"rows_read": self.rows_read, "rows_same_as_in_train": same, "quarantined": quarantined}

    def _check_label_features(self) -> None:
        """Features of labels stand in the order of the label numbers, which a label table must not change."""
        table = self.index.table
        if self.source.label_features is not None and table is not None:
            numbers = [str(number) for number in range(self.shape.n_labels or 0)]
            if table.ids != numbers:
                raise ConfigError(
                    "with label_features, the label table's ids must be the label numbers from 0, in order"
                )

    # First pass

    def _stage(self, split: Split, staging: Path) -> StagedSplit:
        is_train = split == "train"
        groups = self.groups if is_train else None
        checks = Checks(
            self.source.reader,
            self.index,
            self.quarantine,
            known_groups=None if groups is None else groups.known_ids,
            empty_rows_are_bad=self.source.empty_rows == "bad",
            repeated_labels_are_bad=self.source.repeated_labels == "fail",
        )
        labels = groups is None or not groups.have_labels or self.source.row_labels_are_own
        wanted = Wanted(labels=labels, groups="needed" if is_train else "optional")

        def progress(rows: int) -> None:
            self.rows_read += rows
            done = sum(len(self.parts[earlier]) for earlier in SPLITS[: SPLITS.index(split)])
            self.report(done, self.steps, {"rows": float(self.rows_read)})

        return stage_split(
            split, self.parts[split], self.shape, checks, staging / f"{split}.arrow", self.block_bytes,
            wanted, progress,
        )  # fmt: skip

    # Between the passes: where each row goes

    def _resolve_duplicates(self) -> dict[str, int]:
        """Send each good row to its split, and drop what is there twice; returns how many rows only look the same."""
        self.goes_to: dict[Split, npt.NDArray[np.int8]] = {
            split: np.full(staged.rows, SPLITS.index(split), np.int8) for split, staged in self.staged.items()
        }
        for own, before in same_rows(list(self.staged.values()), "ids"):
            if own.id != before.id:
                continue  # two ids with one fingerprint
            problem = "repeated row id" if own.split == before.split else f"{before.split} row inside {own.split}"
            place = replace(own.place, field=self.source.reader.column_name("id"))
            self._drop(own, InputError(place, problem, repr(own.id), f"an id that is not at {before.place}"))
        same: dict[str, int] = {split: 0 for split in self.staged if split != "train"}
        for own, before in same_rows(list(self.staged.values()), "content"):
            if before.split == "train" != own.split and self.goes_to[own.split][own.position] != DROPPED:
                same[own.split] += 1
                if self.source.same_rows_in_test == "fail":
                    problem, found = f"train row inside {own.split}", f"the features of {before.place}"
                    self._drop(own, InputError(own.place, problem, found, "rows that train does not have"))
        return same

    def _drop(self, row: SameRow, error: InputError) -> None:
        self.quarantine.add(row.split, error)
        self.goes_to[row.split][row.position] = DROPPED

    def _leave_out_unlabelled(self, groups: TrainGroups) -> None:
        """Drop train rows of which no label is known and no group that has labels."""
        rows = self._kept_in_train()
        unlabelled = rows[~groups.tell_of(rows)]
        self.goes_to["train"][unlabelled] = DROPPED
        self.unlabelled = len(unlabelled)

    def _resolve_holdout(self, rng: np.random.Generator) -> None:
        """Move random rows of train to dev and test, whole groups where there are groups."""
        members = None if self.groups is None else self.groups.memberships.members
        rows, shares = self._kept_in_train(), (self.source.holdout.dev, self.source.test_share)
        self.goes_to["train"][rows] = held_out(len(rows), shares, rng, members)
        if not self._rows_of("train"):
            raise InputError(Place(str(self.parts["train"][0])), "no rows to train on", "0 rows", "at least one")

    def _rows_of(self, split: Split) -> int:
        return sum(int((code == SPLITS.index(split)).sum()) for code in self.goes_to.values())

    def _kept_in_train(self) -> Int64:
        return np.flatnonzero(self.goes_to["train"] == 0)

    # Between the passes: groups and labels

    def _labelled_groups(self) -> IngestedGroups | None:
        """The groups, with provisional label numbers."""
        if self.groups is None:
            return None
        return self.groups.with_labels(self._kept_in_train(), self.index, self.shape.n_labels, self.quarantine)

    @property
    def _rows_have_labels(self) -> bool:
        return self.groups is None or self.groups.row_labels == "own"

    def _resolve_labels(self, groups: IngestedGroups | None) -> None:
        """Count labels, give them their final numbers and decide how many there are."""
        highest = max(staged.highest_label for staged in self.staged.values())
        n_seen = max(highest, int(groups.labels.indices.max(initial=-1)) if groups else -1) + 1
        counts = self._label_counts(n_seen)
        in_truth = np.zeros(n_seen, np.bool_)
        if groups is not None:
            in_truth = (counts[0] > 0) & self._rows_have_labels
            counts[0] = 0
            np.add.at(counts[0], groups.labels.indices, groups.labels.data.astype(np.int64))
        self.final = self.index.order(counts[0] > 0, in_truth | (counts[1:].sum(axis=0) > 0))
        table, numbered = self.index.table, np.flatnonzero(self.final >= 0)
        least = len(table.ids) if table is not None else self.shape.n_labels or 0
        self.n_labels = max(least, int(self.final.max(initial=-1)) + 1)
        self.label_counts = np.zeros((len(SPLITS), self.n_labels), np.int64)
        self.label_counts[:, self.final[numbered]] = counts[:, numbered]

    def _label_counts(self, n_seen: int) -> Int64:
        """How often the rows of each split name each provisional label."""
        counts = np.zeros((len(SPLITS), n_seen), np.int64)
        for split, staged in self.staged.items():
            start = 0
            for batch in staged.batches(["labels"]):
                offsets, labels = list_parts(pa.chunked_array([batch.column(0)]))
                goes_to = np.repeat(self.goes_to[split][start : start + batch.num_rows], np.diff(offsets))
                for number in np.unique(goes_to[goes_to >= 0]).tolist():
                    counts[number] += np.bincount(labels[goes_to == number], minlength=n_seen)
                start += batch.num_rows
        return counts

    # Second pass

    def _plan(self) -> Plan:
        """What is known about the whole dataset once all rows are read."""
        reader, staged = self.source.reader, self.staged.values()
        shift = reader.index_shift(min(split.lowest_index for split in staged))
        n_features = self.shape.n_features
        if n_features is None:
            n_features = max(0, max(split.highest_index for split in staged) + 1 - shift)
        return Plan(reader.form, n_features, shift, self.final, self.goes_to)

    def _write(self, groups: IngestedGroups | None) -> dict[str, Any]:
        """Write all files but the quarantine; returns the counts."""
        plan = self._plan()
        kinds: dict[Split, RowLabels] = dict.fromkeys(SPLITS, "own")
        if groups is not None:
            kinds["train"] = "truth" if self._rows_have_labels else "none"
        sizes = {
            split: write_split(self.directory, split, self.staged, plan, kinds[split])
            for split in SPLITS
            if self._rows_of(split)
        }
        table = self.index.final_table(self.final, self.n_labels, self.label_counts[0])
        write_table(self.directory / "labels.parquet", table)
        described: dict[str, Any] = {
            "format": FORMAT,
            "form": plan.form,
            "n_labels": self.n_labels,
            "n_features": plan.n_features,
            "n_label_features": self._write_label_features(),
            "splits": sizes,
        } | ({"image_shape": self.shape.image} if plan.form == "image" else {})
        (self.directory / "dataset.json").write_text(json.dumps(described, indent=2) + "\n")
        seen = self.label_counts > 0
        counts: dict[str, Any] = {name: {split: size[name] for split, size in sizes.items()} for name in sizes["train"]}
        counts |= {
            "labels": self.n_labels,
            "features": plan.n_features,
            "labels_not_in_train": int((seen[1:].any(axis=0) & ~seen[0]).sum()),
            "labels_never_seen": int((~seen.any(axis=0)).sum()),
            "repeated_labels": {split: staged.repeated_labels for split, staged in self.staged.items()},
            "held_out": self._held_out(),
            "rows_of_unknown_labels": self.unlabelled,
            "bags": self._write_bags(),
            "notes": self._notes(groups),
        }
        if groups is not None:
            final = groups.with_labels(self.final, self.n_labels)
            write_table(self.directory / "groups.parquet", final.table())
            counts |= {"groups": final.counts(), "row_labels": "own" if self._rows_have_labels else "group"}
        return counts

    def _held_out(self) -> dict[Split, int]:
        """Rows of train that went to other splits."""
        numbers = {split: int((self.goes_to["train"] == SPLITS.index(split)).sum()) for split in SPLITS[1:]}
        return {split: rows for split, rows in numbers.items() if rows}

    def _write_bags(self) -> dict[Split, int]:
        """The bags of dev and test, from the files' group columns or from the groups of rows that were held out."""
        numbers: dict[Split, int] = {}
        for split in SPLITS[1:]:
            staged, number, bags = self.staged.get(split), SPLITS.index(split), None
            if staged is not None and staged.has_groups:
                column = staged.column("group", np.flatnonzero(self.goes_to[split] == number))
                bags = members_by_column(column, None).table()
            elif self.groups is not None:
                bags = self.groups.of_rows(np.flatnonzero(self.goes_to["train"] == number))[0].table()
            if bags is not None and bags.num_rows:
                write_table(self.directory / f"{split}_bags.parquet", bags)
                numbers[split] = bags.num_rows
        return numbers

    def _notes(self, groups: IngestedGroups | None) -> list[str]:
        """What was decided without being asked, in sentences for people."""
        notes = [self.groups.note(groups.merge)] if self.groups is not None and groups is not None else []
        held = self._held_out().get("test", 0)
        if held and self.source.holdout.test is None:
            notes.append(
                f"No test files were given: {held:,} rows of train ({self.source.test_share:.0%}) were held out as "
                "test. Set data.holdout.test to change the share."
            )
        if self.unlabelled:
            notes.append(
                f"Train rows in no group with labels were left out, as their labels are unknown: {self.unlabelled:,}."
            )
        dropped = sum(staged.repeated_labels for staged in self.staged.values())
        if dropped:
            notes.append(f"{dropped:,} labels that stood twice on a row were counted once.")
        return notes

    def _write_label_features(self) -> int | None:
        """Features of the labels, where there is a file of them; a bad row is an error, for each label needs one."""
        path = self.source.label_features
        if path is None:
            return None
        width, blocks = self.source.reader.label_features(path, self.shape, self.block_bytes)
        with RowWriter(self.directory / "label_features.parquet", feature_schema("sparse", width)) as writer:
            for block in blocks:
                if block.bad:
                    raise block.bad[min(block.bad)]
                writer.write(pa.Table.from_batches([block.rows]))
        return width

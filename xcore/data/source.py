"""What to ingest: the files, how to read them, and what to do with rows that are wrong."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from xcore.components import Component
from xcore.data.readers.base import FilePair, Part, Split
from xcore.data.readers.family import AnyReader
from xcore.errors import ConfigError

DEFAULT_TEST_SHARE = 0.1
DEFAULT_DEV_SHARE = 0.1

__all__ = ["FilePair", "GroupFile", "Holdout", "LabelFile", "Source"]


TABLE_MODULES = {
    ".parquet": "xcore.data.readers.parquet",
    ".jsonl": "xcore.data.readers.jsonl",
    ".ndjson": "xcore.data.readers.jsonl",
    ".csv": "xcore.data.readers.csv",
    ".tsv": "xcore.data.readers.csv",
}


class _SideTable(Component):
    """A table. The file name suffix gives the format."""

    path: Path = Field(description="The file. It may be compressed (.gz or .zst).")

    def used_modules(self) -> Iterable[str]:
        return {module for suffix, module in TABLE_MODULES.items() if suffix in self.path.suffixes}


class LabelFile(_SideTable):
    """A table with one row per label, in the order of the label numbers: Parquet, JSONL, CSV or TSV."""

    id: str | None = Field(
        "id",
        title="Id",
        description="Column with the label ids that the rows use. Empty: labels are numbered by their row, from 0.",
    )
    name: str = Field(
        "name", description="Column with the label names. If the column is missing, the ids are the names."
    )
    parents: str = Field("parents", description="Column with the ids of each label's parents. It may be missing.")
    delimiter: str | None = Field(
        None,
        min_length=1,
        description="Text between two parents, if the parents are one string. Empty: the parents are lists.",
    )


class GroupFile(_SideTable):
    """A table with one row per group: Parquet, JSONL, CSV or TSV."""

    id: str = Field("id", title="Id", description="Column with the group ids.")
    members: str = Field(
        "members",
        description="Column with the row ids of each group's members. Not needed if the data has a group column.",
    )
    labels: str = Field(
        "labels",
        description="Column with the labels of each group. If the column is missing, the labels of the group's "
        "rows are merged.",
    )
    delimiter: str | None = Field(
        None,
        min_length=1,
        description="Text between two members or two labels, if they are one string. Empty: they are lists.",
    )
    merge: Literal["auto", "list", "set"] = Field(
        "auto",
        description="How to read the labels column. list: a label is repeated once for each member that has "
        "it; set: each label occurs once, so the number of members is unknown; auto: list if any group repeats a "
        "label, else set.",
    )
    empty: Literal["none", "unknown"] = Field(
        "none",
        description="What an empty cell of the labels column says. none: no member has any label; unknown: the labels "
        "of the group were not recorded, and rows that are in no other group are left out.",
    )


class Holdout(Component):
    """Shares of the train rows to hold out at random, by the seed. Rows of one group stay together."""

    dev: float = Field(
        0.0, ge=0, lt=1, description="Share of the train rows that becomes the dev split. 0: no dev split."
    )
    test: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="Share of the train rows that becomes the test split. Empty: 0.1 if there are no test "
        "files. 0: no test split.",
    )

    @model_validator(mode="after")
    def _leaves_train(self) -> Self:
        if self.dev + (self.test or 0) >= 1:
            raise ValueError(f"dev {self.dev} and test {self.test} leave no rows to train on")
        return self


class Source(Component):
    """The data to ingest. Relative paths start at the preset's folder; if nothing is there, at the current folder."""

    reader: AnyReader = Field(description="File format and its options.")
    train: list[Part] = Field([], description="Files with the train rows. Several files form one dataset.")
    dev: list[Part] = Field(
        [], description="Files with the dev rows. Models may use them to choose settings and to stop training."
    )
    test: list[Part] = Field([], description="Files with the test rows. They are used only to measure.")
    labels: LabelFile | None = Field(
        None, description="Table of all labels. If it is given, a label that is not in the table is an error."
    )
    label_features: Path | None = Field(
        None,
        description="File with the features of the labels, one row per label. Only for the readers xmc-split and npz.",
    )
    groups: GroupFile | None = Field(
        None, description="Table of groups, for data where labels belong to groups of train rows."
    )
    row_labels: Literal["auto", "own", "group"] = Field(
        "auto",
        description="How to read labels on a train row that belongs to a group. own: they belong to the row. "
        "Each group then counts how many of its rows have each label, and the rows' labels are kept as the truth. "
        "group: they are the labels of the group, repeated on each row. auto: group if all rows of every group "
        "have the same labels, else own.",
    )
    holdout: Holdout = Field(
        Holdout(), description="Shares of the train rows to hold out, for splits that have no files."
    )
    on_bad_row: Literal["fail", "quarantine"] = Field(
        "fail",
        description="What to do with bad rows. fail: stop at the first one. quarantine: set them aside with "
        "the reason, and continue.",
    )
    max_bad_share: float = Field(
        0.01,
        ge=0,
        le=1,
        description="Largest share of bad rows that quarantine accepts. If more rows are bad, ingestion fails.",
    )
    empty_rows: Literal["bad", "keep"] = Field(
        "bad", description="What to do with rows that have no features: treat them as bad rows, or keep them."
    )
    repeated_labels: Literal["drop", "fail"] = Field(
        "drop",
        description="What to do if a row has the same label twice: drop the repetition, or treat the row as a bad row.",
    )
    same_rows_in_test: Literal["count", "fail"] = Field(
        "count",
        description="What to do with dev or test rows that have exactly the same features as a train row: only "
        "count them, or treat them as bad rows.",
    )

    @field_validator("labels", "groups", mode="before")
    @classmethod
    def _path_alone(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str | Path) else value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        try:
            self.parts()
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if self.label_features is not None and not self.reader.pairs:
            raise ValueError("label_features: only the readers of pairs, xmc-split and npz, have such a file")
        for split, share in (("dev", self.holdout.dev), ("test", self.holdout.test)):
            if share and getattr(self, split):
                raise ValueError(f"holdout.{split} is {share} but {split} files are given: choose one of the two")
        if (self.holdout.dev or self.holdout.test) and self.only_groups_have_labels:
            raise ValueError("holdout needs rows with labels of their own, but the labels here belong to groups")
        return self

    @property
    def has_groups(self) -> bool:
        """Whether the labels of train belong to groups of rows."""
        return self.groups is not None or self.reader.groups_rows

    @property
    def row_labels_are_own(self) -> bool:
        """Whether a label beside a row with a group is known to be the row's own before anything is read."""
        return self.row_labels == "own" or self.reader.row_labels_are_own

    @property
    def only_groups_have_labels(self) -> bool:
        """Whether it is known before anything is read that train rows have no labels of their own."""
        return self.has_groups and self.row_labels == "group" and not self.reader.row_labels_are_own

    @property
    def test_share(self) -> float:
        """Share of the train rows that becomes the test split."""
        if self.holdout.test is not None:
            return self.holdout.test
        return 0.0 if self.parts()["test"] else DEFAULT_TEST_SHARE

    def with_dev_rows(self) -> Source:
        """The same source, which holds a tenth of the train rows out as dev where it had no dev rows and can do so."""
        if self.parts()["dev"] or self.holdout.dev or self.only_groups_have_labels:
            return self
        return self.model_copy(update={"holdout": self.holdout.model_copy(update={"dev": DEFAULT_DEV_SHARE})})

    def need_split(self, split: Split, wanted_by: str) -> None:
        """Raise `ConfigError` unless ingestion will make such a split; `wanted_by` is the option that asks for it."""
        share = {"train": 1.0, "dev": self.holdout.dev, "test": self.test_share}[split]
        if self.parts()[split] or (share > 0 and not self.only_groups_have_labels):
            return
        other = f"hold rows of train out (data.holdout.{split}, such as {DEFAULT_TEST_SHARE})"
        if self.only_groups_have_labels:
            other = "set data.row_labels to own if the labels on rows are their own, so that rows can be held out"
        raise ConfigError(
            f"{wanted_by} is {split}, but the data has no {split} split: name {split} files (data.{split}), {other}, "
            "or measure on another split"
        )

    def parts(self) -> dict[Split, list[Part]]:
        """What there is to read for each split."""
        return self.reader.parts({"train": list(self.train), "dev": list(self.dev), "test": list(self.test)})

    def files(self) -> list[Path]:
        """Every input file, in a fixed order; its contents decide the dataset."""
        files: list[Path] = []
        for part in [*self.train, *self.dev, *self.test]:
            files.extend([part.features, part.labels] if isinstance(part, FilePair) else [part])
        files.extend(table.path for table in (self.labels, self.groups) if table is not None)
        return [*files, self.label_features] if self.label_features is not None else files

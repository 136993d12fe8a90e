"""``eyrie init``: looks at files of a person's own, and writes a preset for them with what it assumed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from flows.catalogue import FLOWS
from flows.presets import load_params
from xcore.data.file_samples import TABLE_KINDS, Sample, dimensions, sample_of
from xcore.errors import ConfigError

LABEL_NAMES = ("labels", "label", "tags", "subjects", "categories", "category", "classes", "class", "codes", "concepts")
TEXT_NAMES = ("text", "body", "content", "abstract", "description", "summary", "title", "name")
ID_NAMES = ("id", "_id", "uid", "uri", "key", "doc_id", "row_id", "pid")
PAIR_KINDS = ("npz", "idx")
DELIMITERS = (";", "|", "\t", ",", " ")
SPLITS = {"test": r"(^|[^a-z])(test|tst|t10k)([^a-z]|$)", "dev": r"(^|[^a-z])(dev|valid|validation|val)([^a-z]|$)"}


@dataclass
class Guess:
    """A preset in the making: the options of its reader, its files by split, and a reason for each."""

    reader: dict[str, Any] = field(default_factory=dict)
    files: dict[str, list[Any]] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)


def write_first_preset(files: Sequence[Path], name: str, output: Path, text: str | None, labels: str | None) -> int:
    """Write a preset for the files, check that the pipeline takes it, and say what was assumed."""
    if output.exists():
        raise ConfigError(f"{output} exists: it is not overwritten. Choose another file with --output")
    guess = guess_preset(files, text, labels)
    content = preset_text(guess, name, output.parent)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(content, encoding="utf8")
    try:
        load_params(FLOWS["pipeline"].params, output)
    except ConfigError:
        output.unlink()
        raise
    print(f"wrote {output}, assuming:")
    for what, reason in guess.why.items():
        print(f"  {what}: {_on_one_line(reason)}")
    print(f"Read it, correct what is wrong, and run it: eyrie pipeline {output}")
    return 0


def guess_preset(files: Sequence[Path], text: str | None = None, labels: str | None = None) -> Guess:
    """What the files are: reader, columns, delimiters and splits."""
    guess = Guess()
    samples = [sample_of(path) for path in files]
    kinds = sorted({sample.kind for sample in samples})
    if len(kinds) > 1:
        raise ConfigError(f"the files are of several formats ({', '.join(kinds)}): give files of one format")
    guess.reader["kind"] = kinds[0]
    guess.why["reader"] = f"{kinds[0]}, since {samples[0].reason}"
    if kinds[0] in TABLE_KINDS:
        _guess_columns(guess, samples[0], text, labels)
    _guess_splits(guess, files)
    if kinds[0] in PAIR_KINDS:
        guess.files = {split: _pairs(kinds[0], paths) for split, paths in guess.files.items()}
        guess.why["pairs"] = "; ".join(
            f"{_name(pair['features'])} with the labels of {_name(pair['labels'])}"
            for pairs in guess.files.values()
            for pair in pairs
        )
    return guess


def _pairs(kind: str, paths: Sequence[str]) -> list[dict[str, str]]:
    """Files of features, each with its file of labels, both in the order of their names."""
    labels = sorted(path for path in paths if _holds_labels(kind, Path(path)))
    features = sorted(path for path in paths if path not in labels)
    if len(labels) != len(features):
        raise ConfigError(
            f"{kind} files come in pairs, one with features and one with labels; got {len(features)} with features "
            f"({', '.join(map(_name, features)) or 'none'}) and {len(labels)} with labels "
            f"({', '.join(map(_name, labels)) or 'none'})."
            + (" A file with labels has `labels` or `Y` as a word of its name." if kind == "npz" else "")
        )
    return [{"features": one, "labels": other} for one, other in zip(features, labels, strict=True)]


def _holds_labels(kind: str, path: Path) -> bool:
    if kind == "idx":
        return dimensions(path) == 1
    return re.search(r"(^|[^a-z])(y|labels?|targets?)([^a-z]|$)", path.name.lower()) is not None


def _guess_columns(guess: Guess, sample: Sample, text: str | None, labels: str | None) -> None:
    known = sample.columns
    for wanted in filter(None, (text, labels)):
        if wanted not in known:
            raise ConfigError(f"{sample.path} has no column {wanted!r}; its columns are: {', '.join(known)}")
    if sample.delimiter:
        guess.reader["delimiter"] = sample.delimiter
        guess.why["delimiter"] = f"{sample.delimiter!r}, the most frequent one in the header"
    lists = (name for name in known if sample.is_list_of(name, str))
    chosen = labels or _named(known, LABEL_NAMES) or next(lists, None)
    if chosen is None:
        raise ConfigError(
            f"{sample.path}: no column looks like labels; its columns are: {', '.join(known)}. Name one with --labels"
        )
    guess.reader["labels"], guess.why["labels"] = chosen, f"column {chosen!r}"
    others = [name for name in known if name != chosen]
    _guess_features(guess, sample, others, text)
    _guess_label_delimiter(guess, sample, chosen)
    _guess_id(guess, sample)


def _guess_id(guess: Guess, sample: Sample) -> None:
    """A column with a usual name, or else the first of the file if it holds what people use as ids."""
    used = {guess.reader.get(role) for role in ("labels", "text", "vector")}
    others = [name for name in sample.columns if name not in used]
    number = _named([name for name in others if sample.is_unique(name)], ID_NAMES)
    if number is None and others[:1] == sample.columns[:1] and sample.holds_keys(others[0]):
        number = others[0]
    if number:
        guess.reader["id"], guess.why["id"] = number, f"column {number!r}, with a different value in each row looked at"


def _guess_features(guess: Guess, sample: Sample, others: list[str], text: str | None) -> None:
    vector = next((name for name in others if sample.is_list_of(name, int, float)), None)
    found = text or _named([name for name in others if sample.mean_length(name)], TEXT_NAMES)
    longest = max(others, key=sample.mean_length, default=None)
    if found is None and vector is not None:
        guess.reader["vector"], guess.why["vector"] = vector, f"column {vector!r}, which holds lists of numbers"
        return
    if found is None and (longest is None or not sample.mean_length(longest)):
        raise ConfigError(
            f"{sample.path}: no column looks like text or a vector; its columns are: {', '.join(sample.columns)}. "
            "Name one with --text"
        )
    chosen = str(found or longest)
    reason = "as you said" if text else "by its name" if found else "the longest texts"
    guess.reader["text"], guess.why["text"] = chosen, f"column {chosen!r}, {reason}"


def _guess_label_delimiter(guess: Guess, sample: Sample, column: str) -> None:
    cells = [str(value) for value in sample.values(column) if isinstance(value, str | int) and value != ""]
    if not cells:
        return
    share = {sign: sum(sign in cell for cell in cells) / len(cells) for sign in DELIMITERS}
    best = max((sign for sign in DELIMITERS if sign != " "), key=lambda sign: share[sign])
    if share[best] == 0 and _separates(" ", cells):
        best = " "
    guess.reader["label_delimiter"] = best
    if share[best] == 0:
        guess.why["label delimiter"] = "none was seen: each cell is taken as one label"
    else:
        guess.why["label delimiter"] = f"{best!r}, in {share[best]:.0%} of the cells looked at"


def _separates(sign: str, cells: Sequence[str]) -> bool:
    """Whether cells look like several labels: there are fewer pieces than cells. Words of names are no labels."""
    different = set(cells)
    pieces = {piece for cell in different for piece in cell.split(sign)}
    return sum(sign in cell for cell in cells) > len(cells) / 2 and len(pieces) < len(different)


def _guess_splits(guess: Guess, files: Sequence[Path]) -> None:
    for path in files:
        split = next((one for one, pattern in SPLITS.items() if re.search(pattern, path.name.lower())), "train")
        guess.files.setdefault(split, []).append(str(path.absolute()))
    if "train" not in guess.files:
        raise ConfigError(f"no train rows: {', '.join(path.name for path in files)} are all named as test or dev files")
    guess.why["splits"] = "; ".join(f"{split}: {', '.join(map(_name, paths))}" for split, paths in guess.files.items())
    if "test" not in guess.files:
        guess.why["test rows"] = "a tenth of the train rows, held out at random by the seed"


def preset_text(guess: Guess, name: str, folder: Path) -> str:
    """The preset as YAML, with the reasons as comments. Files below its folder have relative paths, so that both can
    be moved together."""
    files = {split: _below(folder.absolute(), paths) for split, paths in guess.files.items()}
    lines = ["# Written by `eyrie init`. `eyrie options` tells what else can be set."]
    lines += [f"#   {what}: {_on_one_line(reason)}" for what, reason in guess.why.items()]
    lines += [f"name: {json.dumps(name)}", "data:", f"  reader: {_flow(guess.reader)}"]
    lines += [f"  {split}: {_flow(files[split])}" for split in ("train", "dev", "test") if split in files]
    if "test" not in files:
        lines.append("  holdout: {test: 0.1}  # share of the train rows to measure on")
    lines.append("  on_bad_row: fail  # stop at the first bad row; quarantine: set bad rows aside and go on")
    model = "ova" if "vector" in guess.reader or guess.reader["kind"] == "idx" else "parabel"
    lines.append(f"model: {{kind: {model}}}  # other kinds: eyrie options model")
    return "\n".join(lines) + "\n"


def _below(folder: Path, files: Any) -> Any:
    """Paths, or pairs of paths, relative to a folder where they are below it."""
    if isinstance(files, list):
        return [_below(folder, one) for one in files]
    if isinstance(files, dict):
        return {role: _below(folder, one) for role, one in files.items()}
    below = Path(files).relative_to(folder) if Path(files).is_relative_to(folder) else None
    return files if below is None or ".." in below.parts else str(below)


def _on_one_line(text: str) -> str:
    """A comment that stays one: names of files and columns may hold line ends."""
    return text if text.isprintable() else ascii(text)[1:-1]


def _flow(value: Any) -> str:
    """YAML in one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True).strip()


def _named(columns: Sequence[str], usual: Sequence[str]) -> str | None:
    """The column with the first of the usual names that there is, in any case."""
    known = {name.lower(): name for name in columns}
    return next((known[name] for name in usual if name in known), None)


def _name(path: str) -> str:
    return Path(path).name

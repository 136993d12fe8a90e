"""Odd inputs for every reader, for presets, for ``--set`` and for a served model: an answer, or one of our errors."""

from __future__ import annotations

import gzip
import io
import json
import random
import resource
import shutil
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

from benchmarks.faults.mutation import mutated, odd_value
from benchmarks.faults.outcome import Outcome
from benchmarks.faults.work import DEMO, Child, sound_store
from flows.params import PipelineParams
from flows.presets import load_params
from xcore.components import silent
from xcore.data.ingest import ingest
from xcore.data.source import Source
from xcore.errors import EyrieError, InputError

INPUTS = 100_000
SHARES = {"readers": 0.8, "presets": 0.08, "--set": 0.08, "served": 0.04}
SECONDS = 30  # for one input
MEMORY = 6 << 30
CORPUS = Path(__file__).with_name("corpus")  # inputs that went wrong once: KIND/NAME
ROWS: list[dict[str, Any]] = [
    {"id": f"r{n}", "text": f"word{n} ünd", "labels": [str(n % 3), "x"], "v": [n, 0.5]} for n in range(9)
]


def sound_files() -> dict[str, tuple[dict[str, Any], dict[str, bytes]]]:
    """For each reader its options and small files that it reads without complaint."""
    lines = b"".join(b"%d,%d 0:1.5 %d:-2e-3 9:0.25\n" % (n % 3, n % 2 + 3, n % 7 + 1) for n in range(9))
    matrix = b"9 10\n" + b"".join(b"%d:1 9:0.5\n" % (n % 8) for n in range(9))
    X, table, plain = io.BytesIO(), io.BytesIO(), io.StringIO()
    sp.save_npz(X, sp.csr_array(np.eye(9, 10, dtype=np.float32)))
    pq.write_table(pa.Table.from_pylist(ROWS), table)
    plain.write("id,text,labels,v\n")
    plain.writelines(f'{row["id"]},"{row["text"]}",{";".join(row["labels"])},{row["v"][0]} 0.5\n' for row in ROWS)
    images = bytes([0, 0, 8, 3]) + np.array([9, 2, 3], ">u4").tobytes() + bytes(range(54))
    classes = bytes([0, 0, 8, 1]) + np.array([9], ">u4").tobytes() + bytes(n % 3 for n in range(9))
    jsonl = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
    pair = {"features": matrix, "labels": matrix.replace(b"9 10", b"9 10")}
    return {
        "xmc": ({"kind": "xmc"}, {"rows.txt": b"9 10 5\n" + lines}),
        "libsvm": ({"kind": "libsvm"}, {"rows.txt": lines}),
        "libsvm-gz": ({"kind": "libsvm"}, {"rows.gz": gzip.compress(lines)}),
        "xmc-split": ({"kind": "xmc-split"}, pair),
        "npz": ({"kind": "npz"}, {"features": X.getvalue(), "labels": X.getvalue()}),
        "idx": ({"kind": "idx"}, {"features": images, "labels": classes}),
        "jsonl": ({"kind": "jsonl", "text": "text", "id": "id"}, {"rows.jsonl": jsonl}),
        "jsonl-vector": ({"kind": "jsonl", "vector": "v"}, {"rows.jsonl": jsonl}),
        "csv": ({"kind": "csv", "text": "text", "label_delimiter": ";"}, {"rows.csv": plain.getvalue().encode()}),
        "csv-vector": ({"kind": "csv", "vector": "v", "label_delimiter": ";"}, {"rows.csv": plain.getvalue().encode()}),
        "parquet": ({"kind": "parquet", "text": "text", "id": "id"}, {"rows.parquet": table.getvalue()}),
    }


def outcomes(folder: Path, quick: bool) -> Iterator[Outcome]:
    """Each sort of input in a process of its own, with a limit of memory."""
    n = 1_000 if quick else INPUTS
    readers = sound_files()
    for kind in readers:
        yield _in_a_child(
            folder, f"fuzzing, {kind}", partial(_reader, kind, round(n * SHARES["readers"] / len(readers)))
        )
    yield _in_a_child(folder, "fuzzing, presets", partial(_presets, round(n * SHARES["presets"])))
    yield _in_a_child(folder, "fuzzing, --set", partial(_overrides, round(n * SHARES["--set"])))
    yield _in_a_child(folder, "fuzzing, served rows", partial(_served, round(n * SHARES["served"]), folder))


def _in_a_child(folder: Path, case: str, work: Callable[[Outcome, Path], None]) -> Outcome:
    outcome, place = Outcome(case), folder / "fuzzing"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()

    def try_all() -> None:
        warnings.simplefilter("error", RuntimeWarning)  # of numbers that overflow: nobody should read those
        try:
            work(outcome, place)
        finally:
            (folder / "fuzzing.json").write_text(json.dumps([outcome.counts, outcome.problems]))

    log = folder / "fuzzing.log"
    code = Child(try_all, log, {resource.RLIMIT_AS: MEMORY}).wait(24 * 3600)
    if code:
        kept = sorted(place.iterdir())
        outcome.problems.append(f"ended with {code}: {log.read_text()[-1500:]} {kept}")
    else:
        counts, outcome.problems = json.loads((folder / "fuzzing.json").read_text())
        outcome.counts.update(counts)
    return outcome


def _try(outcome: Outcome, what: Callable[[], object], allowed: tuple[type[Exception], ...], shown: Any) -> None:
    """One input: an answer or an error of ours, in bounded time."""
    outcome.counts["inputs"] += 1
    signal.alarm(SECONDS)
    try:
        what()
        outcome.counts["accepted"] += 1
    except allowed as error:
        outcome.counts["refused"] += 1
        if isinstance(error, InputError) and error.place.file not in str(error):
            outcome.problems.append(f"no file in the message: {error}")
    except BaseException:
        outcome.problems.append(f"{shown!r:.300}: {traceback.format_exc()[-700:]}")
    finally:
        signal.alarm(0)


def _reader(kind: str, n: int, outcome: Outcome, place: Path) -> None:
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    options, files = sound_files()[kind]
    draws = random.Random(kind)
    kept = sorted((CORPUS / kind).glob("*")) if (CORPUS / kind).is_dir() else []
    for number in range(n + len(kept)):
        changed = dict(files)
        name = draws.choice(list(files))
        changed[name] = kept[number].read_bytes() if number < len(kept) else mutated(files[name], draws)
        if kind.endswith("gz") and draws.random() < 0.5:
            changed[name] = gzip.compress(mutated(gzip.decompress(files[name]), draws), 1)
        policy = draws.choice(("quarantine", "fail"))
        _try(outcome, partial(read_files, options, changed, policy, place), (EyrieError,), changed[name])


def read_files(options: dict[str, Any], files: dict[str, bytes], policy: str, place: Path) -> None:
    """Ingest one or two files of the given contents in an empty folder."""
    for path in place.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for file, content in files.items():
        (place / file).write_bytes(content)
    paths, folder = [place / file for file in files], place / "out"
    part = {"features": paths[0], "labels": paths[1]} if len(paths) == 2 else paths[0]
    source = {"reader": options, "train": [part], "holdout": {"test": 0}, "on_bad_row": policy, "max_bad_share": 1}
    folder.mkdir()
    ingest(Source.model_validate(source), folder, np.random.default_rng(0), silent, block_bytes=1 << 12)


def _presets(n: int, outcome: Outcome, place: Path) -> None:
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    draws, sound = random.Random(1), [path.read_bytes() for path in sorted(DEMO.parent.glob("*.yaml"))]
    for _ in range(n):
        text = mutated(draws.choice(sound), draws)
        (place / "preset.yaml").write_bytes(text)
        _try(outcome, partial(load_params, PipelineParams, place / "preset.yaml"), (EyrieError,), text)


def _overrides(n: int, outcome: Outcome, place: Path) -> None:
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    draws = random.Random(2)
    sound = (
        *(b"model.kind=ova", b"data.reader.n_train=10", b"evaluation.ks=[1, 3]", b"name=x", b"imputer={kind: auto}"),
        *(b"data.train.0=x.txt", b"model.members=[{model: {kind: ova}}]", b"seed=1", b"data.holdout.dev=.1"),
    )
    for _ in range(n):
        words = [
            mutated(draws.choice(sound), draws).decode("utf-8", "surrogateescape")
            for _ in range(draws.choice((1, 1, 3)))
        ]
        _try(outcome, partial(load_params, PipelineParams, DEMO, words), (EyrieError,), words)


def _served(n: int, folder: Path, outcome: Outcome, place: Path) -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.pyfunc.scoring_server import infer_and_parse_data

    from tasks.pyfunc import ServedModel
    from tasks.served_model import signature_of
    from xcore.inference.scorer import Scorer
    from xcore.models.family import load_model

    signal.signal(signal.SIGALRM, signal.default_int_handler)
    sound, draws, served = sound_store(folder, "parabel"), random.Random(3), ServedModel()
    labels = pq.read_table(next(sound.glob("dataset/*/labels.parquet")))
    served._scorer = Scorer.of_labels(
        load_model(next(sound.glob("model/*"))), "sparse", labels["id"], labels["name"], None
    )

    def ask(rows: list[dict[str, Any]], params: dict[str, Any]) -> None:
        """What MLflow's server does with a request."""
        frame = infer_and_parse_data({"dataframe_records": rows}, signature_of("sparse").inputs)
        served.predict(None, frame, params)

    kept = [json.loads(path.read_bytes()) for path in sorted((CORPUS / "served").glob("*"))]
    for rows, params in (*kept, *(_odd_request(draws) for _ in range(n))):
        _try(outcome, partial(ask, rows, params), (MlflowException,), (rows, params))


def _odd_request(draws: random.Random) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"indices": [3, 17], "values": [1.0, 2.0]} for _ in range(draws.randrange(1, 3))]
    params: dict[str, Any] = {"k": 3}
    draws.choice(rows)[draws.choice(("indices", "values", "text"))] = odd_value(draws)
    if draws.random() < 0.3:
        params[draws.choice(("k", "threshold", "x"))] = odd_value(draws)
    return rows, params

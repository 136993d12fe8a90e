"""Train, save, load and predict with one label-tree library in a process of its own; prints one line of JSON.

Runs in the peers' own environments, so it imports nothing of ours at the top.
"""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

N_SINGLE_ROWS = 200
SINGLE_ROW_SECONDS = 10.0


def main() -> None:
    """Words: library, folder with the data, folder for the model, numbers of trees, threads and CPU seconds allowed."""
    library, data, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    n_trees, n_threads, allowed = map(int, sys.argv[4:7])
    resource.setrlimit(resource.RLIMIT_CPU, (allowed, allowed))
    X, Y, X_test = (sp.load_npz(data / f"{name}.npz") for name in ("X_train", "Y_train", "X_test"))
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    module: Any = LIBRARIES[library](X, Y, out, n_trees, n_threads)
    before = peak_bytes()
    train = clocked(module.train)
    peak = peak_bytes()
    files = sorted(path for path in (out / "model").rglob("*") if path.is_file())
    load = clocked(module.load)
    module.predict(X_test[:100])
    predict = clocked(lambda: np.save(out / "labels.npy", module.predict(X_test)))
    one = single_rows(module.predict, X_test)
    figures = {
        "train_wall": train[0],
        "train_cpu": train[1],
        "load_wall": load[0],
        "predict_wall": predict[0],
        "predict_cpu": predict[1],
        "one_row_wall": one[0],
        "one_row_cpu": one[1],
        "rss_before_training": before,
        "rss_peak": peak,
        "model_bytes": sum(path.stat().st_size for path in files),
        "model_sha256": hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest(),
    }
    print(json.dumps(figures))


def single_rows(predict: Callable[[Any], Any], X: Any) -> tuple[float, float]:
    """Median wall and mean CPU seconds of single rows spread over the test set, whose order may follow their length.

    CPU time is taken once for all rows: with a limit on it, a process of several threads sees its own clock stand still
    for longer than a row takes.
    """
    rows = [X[i : i + 1] for i in np.linspace(0, X.shape[0] - 1, N_SINGLE_ROWS).astype(int)]
    for row in rows[: N_SINGLE_ROWS // 4]:
        predict(row)
    walls: list[float] = []
    before = cpu_seconds()
    for row in rows:
        start = time.perf_counter()
        predict(row)
        walls.append(time.perf_counter() - start)
        if sum(walls) > SINGLE_ROW_SECONDS:
            break
    return float(np.median(walls)), (cpu_seconds() - before) / len(walls)


def clocked(function: Callable[[], Any]) -> tuple[float, float]:
    """Wall and CPU seconds of a call, all threads and child processes."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    function()
    return time.perf_counter() - wall, cpu_seconds() - cpu


def peak_bytes() -> int:
    """The largest resident memory of this program; ``ru_maxrss`` would begin with that of its parent process."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def cpu_seconds() -> float:
    """User and system time of this process and its finished children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


class Eyrie:
    """Our own; options of ``Parabel`` other than the number of trees stay at their defaults."""

    def __init__(self, X: Any, Y: Any, out: Path, n_trees: int, n_threads: int) -> None:
        import numba

        from xcore.models.parabel import Parabel
        from xcore.training.data import TrainingData

        numba.set_num_threads(n_threads)
        self.data, self.model = TrainingData.of(X, Y), Parabel(n_trees=n_trees)
        self.folder = out / "model"
        self.folder.mkdir()

    def train(self) -> None:
        self.model.fit(self.data).save(self.folder)

    def load(self) -> None:
        self.fitted = self.model.load(self.folder)

    def predict(self, X: Any) -> Any:
        return self.fitted.predict_topk(X, 5).labels


class Pecos:
    """XR-Linear with its defaults; several trees are models of different clusterings, averaged."""

    def __init__(self, X: Any, Y: Any, out: Path, n_trees: int, n_threads: int) -> None:
        self.X, self.Y, self.n_trees, self.n_threads = X.astype(np.float32), Y.astype(np.float32), n_trees, n_threads
        self.folder = out / "model"

    def train(self) -> None:
        from pecos.xmc import Indexer, LabelEmbeddingFactory
        from pecos.xmc.xlinear.model import XLinearModel

        embeddings = LabelEmbeddingFactory.create(self.Y, self.X, method="pifa")
        for tree in range(self.n_trees):
            chain = Indexer.gen(embeddings, seed=tree, threads=self.n_threads)
            model = XLinearModel.train(self.X, self.Y, C=chain, threshold=0.1, threads=self.n_threads)
            model.save(str(self.folder / str(tree)))

    def load(self) -> None:
        from pecos.xmc.xlinear.model import XLinearModel

        paths = [str(self.folder / str(tree)) for tree in range(self.n_trees)]
        self.models = [XLinearModel.load(path, is_predict_only=True) for path in paths]

    def predict(self, X: Any) -> Any:
        k = 5 if self.n_trees == 1 else 50
        scores = sum(m.predict(X, beam_size=10, only_topk=k, threads=self.n_threads) for m in self.models)
        return best_five(scores.tocsr())


class Omikuji:
    """Parabel with the library's defaults; it reads its rows from a file, which is written before the clock starts."""

    def __init__(self, X: Any, Y: Any, out: Path, n_trees: int, n_threads: int) -> None:
        import omikuji

        self.library, self.rows, self.folder = omikuji, out / "rows.txt", out / "model"
        self.n_trees, self.n_threads = n_trees, n_threads
        with self.rows.open("w") as file:
            file.write(f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}\n")
            for i in range(X.shape[0]):
                part = slice(X.indptr[i], X.indptr[i + 1])
                pairs = zip(X.indices[part].tolist(), X.data[part].tolist(), strict=True)
                features = " ".join(f"{column}:{value:.7g}" for column, value in pairs) or "0:0"
                file.write(f"{','.join(map(str, Y.indices[Y.indptr[i] : Y.indptr[i + 1]].tolist()))} {features}\n")

    def train(self) -> None:
        parameters = self.library.Model.default_hyper_param()
        parameters.n_trees = self.n_trees
        self.library.Model.train_on_data(str(self.rows), parameters, self.n_threads).save(str(self.folder))

    def load(self) -> None:
        self.model = self.library.Model.load(str(self.folder))
        self.model.init_prediction_thread_pool(self.n_threads)

    def predict(self, X: Any) -> Any:
        labels = np.full((X.shape[0], 5), -1, np.int32)
        for i in range(X.shape[0]):
            part = slice(X.indptr[i], X.indptr[i + 1])
            pairs = zip(X.indices[part].tolist(), X.data[part].tolist(), strict=True)
            found = [label for label, _ in self.model.predict(pairs, 10, 5)]
            labels[i, : len(found)] = found
        return labels


class NapkinXC:
    """PLT with the library's defaults (binary hierarchical k-means, 100 labels a leaf, logistic loss)."""

    def __init__(self, X: Any, Y: Any, out: Path, n_trees: int, n_threads: int) -> None:
        from napkinxc.models import PLT

        self.X, self.folder = X, out / "model"
        self.labels = [Y.indices[Y.indptr[i] : Y.indptr[i + 1]].tolist() for i in range(Y.shape[0])]
        several = {"ensemble": n_trees} if n_trees > 1 else {}
        self.new: Any = lambda: PLT(str(self.folder), threads=n_threads, seed=0, verbose=False, **several)
        self.model: Any = self.new()

    def train(self) -> None:
        self.model.fit(self.X, self.labels)

    def load(self) -> None:
        self.model = self.new()
        self.model.load()

    def predict(self, X: Any) -> Any:
        labels = np.full((X.shape[0], 5), -1, np.int32)
        for row, found in zip(labels, self.model.predict(X, top_k=5), strict=True):
            row[: len(found)] = found
        return labels


def best_five(scores: Any) -> Any:
    """The five best columns of each row, -1 where there are fewer."""
    labels = np.full((scores.shape[0], 5), -1, np.int32)
    for i in range(scores.shape[0]):
        part = slice(scores.indptr[i], scores.indptr[i + 1])
        best = np.argsort(-scores.data[part], kind="stable")[:5]
        labels[i, : len(best)] = scores.indices[part][best]
    return labels


LIBRARIES = {"eyrie": Eyrie, "pecos": Pecos, "omikuji": Omikuji, "napkinxc": NapkinXC}

if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main()

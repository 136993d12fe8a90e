"""Steps that would not fit into memory are refused before they begin, with an estimate and what to change."""

import subprocess
import sys

# Of each case: what is tried where 300 MB of address space are left, and what must be told. The inputs are small.
PROGRAM = """
import re, resource
from pathlib import Path
import numpy as np, psutil, scipy.sparse as sp, torch

from xcore.components import silent
from xcore.data.feature_files import FeatureFile
from xcore.embedding.pca import Pca
from xcore.errors import NotEnoughMemory
from xcore.grouping.groups import Groups
from xcore.grouping.label_tree import embed_labels
from xcore.heads.fitting.base import weights
from xcore.imputation.baseline import Baseline
from xcore.imputation.disaggregate import Disaggregate
from xcore.models.memory import Memory
from xcore.models.negative_sampling.updates import Parameters
from xcore.models.network import NeuralNetwork
from xcore.models.siamesexml.model import SiameseXml
from xcore.numeric.matrices import csr
from xcore.siamese.fitting.encoder import first_encoder
from xcore.siamese.options import SiameseEncoder
from xcore.training.context import FitContext
from xcore.training.data import TrainingData

rng, WIDE = np.random.default_rng(0), 2_000_000


def rows_of(n, features, per_row):
    columns = np.sort(rng.integers(0, features, (n, per_row)), axis=1).ravel()
    return csr(np.ones(n * per_row), columns, np.arange(n + 1) * per_row, features)


wide, labels = rows_of(20, WIDE, 3), rows_of(20, 5, 1)
grouped = rows_of(5000, 50, 2)
members = csr(np.ones(5000), np.arange(5000), np.array([0, 5000]), 5000)
group_labels = csr(np.full(4000, 2), np.arange(4000), np.array([0, 4000]), 4000)
groups = Groups(members, group_labels, merge="list")
vectors, many = np.zeros((400_000, 64), np.float32), rows_of(400_000, 5, 1)
spread, singles = rows_of(300, 100_000, 20_000), csr(np.ones(3000), np.arange(3000) % 300, np.arange(3001), 300)

CASES = {
    "dense rows": (lambda: FeatureFile(Path("x.parquet"), "vector", 10**6, 300).dense(), "vectors of x.parquet"),
    "sparse rows": (lambda: FeatureFile(Path("x.parquet"), "sparse", 1, 9, 10**9).sparse(), "fewer rows"),
    "images": (lambda: FeatureFile(Path("x.parquet"), "image", 10**6, 784, None, (28, 28, 1)).images(), "images"),
    "pca": (lambda: Pca().fit_blocks([wide], rng), r"basis .*2,000,000 x 528.* Set dimensions lower"),
    "pca, exact": (lambda: Pca(exact_features=10**5).fit_blocks([spread], rng), "Set exact_features lower"),
    "disaggregate": (lambda: Disaggregate().impute(grouped, groups, rng), "candidates of all labels .* smaller groups"),
    "baseline": (lambda: Baseline().impute(grouped, groups, rng), "candidates of all labels .* smaller groups"),
    "network": (lambda: NeuralNetwork().fit(TrainingData.of(wide, labels), FitContext()), "input features .*width"),
    "head": (lambda: weights((10**6, 100), 0), "layer in training .*head"),
    "siamesexml": (lambda: first_encoder(SiameseEncoder(), "sparse", WIDE, 0), "table of words .*encoder.dimensions"),
    "negative-sampling": (lambda: Parameters.random(10**6, 100, np.uint64(0)), "weights of all labels .*dimensions"),
    "memory": (lambda: Memory().fit(TrainingData.of(vectors, many), FitContext()), "the keys .*embedding.dimensions"),
    "label tree": (lambda: embed_labels(spread, singles), "embeddings of all labels .*text.max_features"),
}
left = psutil.Process().memory_info().vms + 300 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (left, left))
for name, (what, told) in CASES.items():
    try:
        what()
    except NotEnoughMemory as error:
        estimate = re.search(r"would take about .* GB, and 0\\.[0-3] GB are free", str(error))
        fine = estimate and re.search(told, str(error))
        print(name, "refused" if fine else f"{error}")
    else:
        print(name, "was not refused")
"""


def test_what_would_not_fit_is_refused_with_an_estimate_before_it_begins() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 13
    assert [line for line in lines if not line.endswith(" refused")] == []

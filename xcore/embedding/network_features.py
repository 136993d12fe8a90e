"""Features of a trained network as an embedding: the last hidden layer, learnt from the labels."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Self

from xcore.embedding.base import Embedding
from xcore.network.fitted import Network, NetworkAbout
from xcore.network.options import NetworkOptions
from xcore.numeric.arrays import write_arrays
from xcore.numeric.checks import ArrayFile
from xcore.numeric.matrices import Float32
from xcore.saved import Described, read_json
from xcore.training.context import FitContext
from xcore.training.data import Matrix, TrainingData, Wish


class NetworkFeatures(NetworkOptions, Embedding):
    """The last hidden layer of a network that is trained to predict the labels."""

    learns_labels: ClassVar[bool] = True
    wants: ClassVar[frozenset[Wish]] = frozenset({"dev", "names"})

    kind: Literal["network"] = "network"

    def fit(self, data: TrainingData, context: FitContext) -> FittedNetworkFeatures:
        """Train the network, and keep all but its output layer."""
        from xcore.network.fitting import fit_network

        return FittedNetworkFeatures(fit_network(self, data, context).network)

    @classmethod
    def load(cls, directory: Path) -> FittedNetworkFeatures:
        """Open what `FittedNetworkFeatures.save` wrote."""
        return FittedNetworkFeatures.load(directory)


@dataclass(frozen=True)
class FittedNetworkFeatures:
    """A map from rows to the features of a network."""

    network: Network

    @property
    def n_features(self) -> int:
        return self.network.n_features

    @property
    def dimensions(self) -> int:
        return self.network.dimensions

    def transform(self, block: Matrix) -> Float32:
        """Features of the last hidden layer, float32 (n, dimensions)."""
        return self.network.transform(block)

    def save(self, directory: Path, name: str = "embedding") -> None:
        """Write ``<name>.safetensors`` and ``<name>.json``."""
        write_arrays(directory / f"{name}.safetensors", self.network.arrays())
        about = {"kind": "network", "network": self.network.about()}
        (directory / f"{name}.json").write_text(json.dumps(about, indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path, name: str = "embedding") -> Self:
        """Read what `save` wrote."""
        about = read_json(directory / f"{name}.json", _About)
        with ArrayFile(directory / f"{name}.safetensors") as file:
            return cls(Network.take(file, about.network))


class _About(Described):
    """``<name>.json``."""

    kind: Literal["network"]
    network: NetworkAbout

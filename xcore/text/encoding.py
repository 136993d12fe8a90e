"""The forward pass of a transformer encoder, by torch and transformers; imported only where texts are encoded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.nn.functional import normalize

from xcore.errors import ArtifactDamaged, ConfigError
from xcore.numeric.matrices import Float32, Int32, row_blocks
from xcore.numeric.parallel import over_blocks
from xcore.search.keys import unit_rows
from xcore.training.shards import single_threaded_torch

TEXTS_AT_ONCE = 16  # of one thread


def read_encoder(folder: Path) -> tuple[dict[str, Any], dict[str, Float32]]:
    """The configuration and the weights of an encoder folder, as float32."""
    auto_model, _ = _library()
    try:
        model, found = auto_model.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, dtype=torch.float32, output_loading_info=True
        )
    except Exception as error:  # the library raises many kinds
        raise ConfigError(f"the encoder folder {folder} cannot be opened by transformers: {error}") from error
    missing = [name for name in found["missing_keys"] if "pooler" not in name]
    if missing:
        raise ConfigError(
            f"{folder}/model.safetensors lacks {len(missing)} weights of its network, such as {missing[0]}"
        )
    weights = {name: np.array(value.detach().numpy(), np.float32) for name, value in model.named_parameters()}
    return json.loads(model.config.to_json_string(use_diff=False)), weights


@dataclass(frozen=True)
class TorchEncoder:
    """A network in memory with its tokenizer.

    Attributes
    ----------
    network, tokenizer : of the libraries
    pooling : 'mean' or 'cls'
    """

    network: Any
    tokenizer: Any
    pooling: Literal["mean", "cls"]

    @classmethod
    def of(
        cls, config: str, tokenizer: str, weights: Mapping[str, Float32], pooling: Literal["mean", "cls"], longest: int
    ) -> TorchEncoder:
        """Build the network; weights that do not fit its configuration are an `ArtifactDamaged`."""
        from tokenizers import Tokenizer

        auto_model, auto_config = _library()
        try:
            about = json.loads(config)
            with torch.random.fork_rng(devices=[]):  # the network begins with random weights
                network = auto_model.from_config(auto_config.for_model(**about)).eval()
            splitter = Tokenizer.from_str(tokenizer)
        except Exception as error:  # the libraries raise many kinds
            raise ArtifactDamaged(f"config.json or tokenizer.json cannot be used ({error})") from error
        own = dict(network.named_parameters())
        shapes = {name: tuple(value.shape) for name, value in own.items()}
        given = {name: array.shape for name, array in weights.items()}
        if shapes != given:
            wrong = sorted(name for name in shapes.keys() | given if shapes.get(name) != given.get(name))
            raise ArtifactDamaged(
                f"weights.safetensors does not fit config.json: {wrong[0]} has the shape {given.get(wrong[0])}, "
                f"expected {shapes.get(wrong[0])}; make the artifact again"
            )
        with torch.no_grad():
            for name, value in own.items():
                value.copy_(torch.from_numpy(weights[name]))
        splitter.no_padding()
        splitter.enable_truncation(longest)
        if splitter.get_vocab_size() > network.config.vocab_size:
            raise ArtifactDamaged(
                f"tokenizer.json has {splitter.get_vocab_size()} tokens, but config.json {network.config.vocab_size}"
            )
        return cls(network, splitter, pooling)

    @property
    def dimensions(self) -> int:
        return int(self.network.config.hidden_size)

    @property
    def n_tokens(self) -> int:
        return int(self.network.config.vocab_size)

    def split(self, texts: list[str]) -> list[list[int]]:
        """The token numbers of each text, with the special tokens."""
        return [encoded.ids for encoded in self.tokenizer.encode_batch(texts)]

    def encode(self, texts: list[str], batch_size: int) -> Float32:
        """Vectors of texts, float32 (n, dimensions); texts of similar length are encoded together."""
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        pieces = over_blocks(lambda part: self.split(texts[part]), row_blocks(len(texts), TEXTS_AT_ONCE))
        split = [ids for piece in pieces for ids in piece]
        sizes = np.array([len(ids) if text.strip() else 0 for ids, text in zip(split, texts, strict=True)], np.int64)
        order = np.argsort(sizes, kind="stable")[np.count_nonzero(sizes == 0) :]

        def fill(part: slice) -> None:
            torch.set_num_threads(1)  # a thread of the pool keeps its own number
            rows[order[part]] = self._encode_batch([split[place] for place in order[part]])

        with single_threaded_torch():
            over_blocks(fill, row_blocks(len(order), batch_size))
        return rows

    def last_layers(self, n: int) -> torch.nn.ModuleList:
        """The last n layers of the network, which share its weights."""
        depth = self.network.config.num_hidden_layers
        stacks = (part for part in self.network.modules() if isinstance(part, torch.nn.ModuleList))
        found = next((stack for stack in stacks if len(stack) == depth), None)
        if found is None or n > depth:
            there = f"has {depth} layers" if found is not None else "has no list of layers"
            raise ConfigError(f"{n} layers are to be trained, but the encoder's network {there}")
        return torch.nn.ModuleList(list(found)[depth - n :])

    def vectors(self, texts: Sequence[Sequence[int] | Int32]) -> torch.Tensor:
        """Vectors of texts, given by their tokens, of length 1 (n, dimensions), with a gradient."""
        states, mask = self._states(texts)
        return normalize(states[:, 0] if self.pooling == "cls" else (states * mask[..., None]).sum(dim=1))

    @torch.inference_mode()
    def _encode_batch(self, texts: list[list[int]]) -> Float32:
        states, mask = (found.cpu().numpy() for found in self._states(texts))
        sums = np.einsum("bt,btd->bd", mask.astype(np.float64), states.astype(np.float64))
        return unit_rows((states[:, 0] if self.pooling == "cls" else sums).astype(np.float32))

    def _states(self, texts: Sequence[Sequence[int] | Int32]) -> tuple[torch.Tensor, torch.Tensor]:
        """The last hidden state of each token (n, t, dimensions), and 1 where there is a token (n, t)."""
        tokens = torch.zeros((len(texts), max(map(len, texts))), dtype=torch.long)
        mask = torch.zeros_like(tokens)
        for place, ids in enumerate(texts):
            tokens[place, : len(ids)], mask[place, : len(ids)] = torch.as_tensor(ids), 1
        tokens, mask = tokens.to(self.network.device), mask.to(self.network.device)
        return self.network(input_ids=tokens, attention_mask=mask).last_hidden_state, mask


def _library() -> tuple[Any, Any]:
    """The classes of the library that open networks by their configuration, without progress bars."""
    try:
        from transformers import AutoConfig, AutoModel
        from transformers.utils import logging
    except ImportError:
        raise ConfigError(
            "text kind transformer needs the package transformers, which is not installed: "
            "pip install 'eyrie[transformer]', or use text kind wordllama or tfidf"
        ) from None
    logging.disable_progress_bar()
    return AutoModel, AutoConfig

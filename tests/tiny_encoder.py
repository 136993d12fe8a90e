"""A transformer encoder with random weights, in a folder of the usual format."""

from pathlib import Path

WORDS = ["a", "law", "on", "fish", "and", "wheat", "the", "price", "of", "prices", "cod", "herring", "boats", "sea"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def write_tiny_encoder(folder: Path, dimensions: int = 8, layers: int = 1) -> Path:
    """A BERT of few layers that knows a few words; pieces of words stand for the rest."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertModel

    letters = [f"{start}{letter}" for start in ("", "##") for letter in "abcdefghijklmnopqrstuvwxyz0123456789"]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys([*SPECIAL, *WORDS, *letters]))}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    shape = {"hidden_size": dimensions, "intermediate_size": 16, "num_hidden_layers": layers, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=32, initializer_range=0.5, **shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = BertModel(config)
    folder.mkdir(parents=True, exist_ok=True)
    network.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder

"""The tokenizer of SmolLM2, built from the metadata of its GGUF file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

# How GGUF marks a token that stands for itself and is never part of a text: a control token.
_CONTROL: Final = 3
_PREFIX: Final = "tokenizer.ggml."


def write_vocabulary(directory: Path, metadata: Mapping[str, Any], context: int) -> None:
    """
    Write ``tokenizer.json`` and ``tokenizer_config.json``.

    A byte-level BPE that takes digits one by one, which is what GGUF calls ``smollm``.

    Args:
        directory: An existing model directory.
        metadata: The file's fields by name.
        context: Longest input in tokens.

    Raises:
        ValueError: When the file is of another kind of tokenizer.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind = (metadata[f"{_PREFIX}model"], metadata[f"{_PREFIX}pre"])
    if kind != ("gpt2", "smollm"):
        raise ValueError(
            f"expected a tokenizer of the kind gpt2 with the pre-tokenizer smollm; found {kind}; "
            f"give the file of SmolLM2"
        )
    tokens = metadata[f"{_PREFIX}tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata[f"{_PREFIX}merges"]]
    tokenizer = Tokenizer(
        models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = metadata[f"{_PREFIX}token_type"]
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == _CONTROL
        ]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{
            f"{name}_token": tokens[metadata[f"{_PREFIX}{field}_token_id"]]
            for name, field in {
                "bos": "bos",
                "eos": "eos",
                "unk": "unknown",
                "pad": "padding",
            }.items()
        },
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": metadata["tokenizer.chat_template"],
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1))

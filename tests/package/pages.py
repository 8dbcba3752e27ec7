"""
The pages of documentation, taken apart: blocks, commands, code in the text, tables, anchors.
"""

import json
import re
import shlex
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.package.conftest import ROOT, run

_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Page:
    path: Path
    text: str

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def prose(self) -> str:
        return _BLOCK.sub("", self.text)

    @property
    def all_blocks(self) -> list[tuple[str, str]]:
        """
        Language and text of every block.
        """
        return _BLOCK.findall(self.text)

    def blocks(self, language: str) -> list[str]:
        return [text for found, text in self.all_blocks if found == language]

    @property
    def code(self) -> list[str]:
        """
        Code within the text.
        """
        return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", self.prose)]

    @property
    def commands(self) -> list[list[str]]:
        """
        The words of every command of the console blocks, without comments.
        """
        lines = "\n".join(self.blocks("console")).replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]

    @property
    def links(self) -> list[str]:
        return re.findall(r"\]\(([^)\s]+)\)", self.prose)

    @property
    def anchors(self) -> set[str]:
        """
        What GitHub calls the headings.
        """
        headings = re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}

    def tables(self, heading: str) -> list[list[dict[str, str]]]:
        """
        The rows of every table whose first heading is given, by heading.
        """
        tables: list[list[dict[str, str]]] = []
        headings: list[str] = []
        for line in self.prose.splitlines():
            if not line.startswith("|"):
                headings = []
                continue
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not headings:
                headings = cells
                if cells[0] == heading:
                    tables.append([])
            elif headings[0] == heading and set(cells[0]) != {"-"}:
                tables[-1].append(dict(zip(headings, cells, strict=True)))
        return tables

    def table(self, heading: str) -> list[dict[str, str]]:
        (rows,) = self.tables(heading)
        return rows


def quoted(cell: str) -> list[str]:
    """
    The code in a table's cell.
    """
    return re.findall(r"`([^`]+)`", cell)


#: What the package page of an index shows; nobody reads it beside the others.
PACKAGE_PAGE = "docs/package.md"

_PATHS = (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks" / "README.md")

PAGES = {page.name: page for page in (Page(path, path.read_text()) for path in sorted(_PATHS))}
README = PAGES["README.md"]


def page(name: str) -> Page:
    return PAGES[f"docs/{name}.md"]


_ASKED = """
import argparse, json, sys
from types import SimpleNamespace
from unittest.mock import patch
from sglang.srt.managers import utils
from sglang.srt.server_args import ServerArgs
from sglang_dynspec_hooks.seams import add_cli_args

parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
add_cli_args.handler(None, parser)
for command in json.loads(sys.argv[1]):
    parser.parse_args(command)
options = [each for action in parser._actions for each in action.option_strings]

def reserved(algorithm):
    spec = SimpleNamespace(
        speculative_algorithm=algorithm, speculative_eagle_topk=1, speculative_num_steps=3
    )
    with (
        patch.object(utils, "get_spec", lambda: spec),
        patch.object(utils, "max_speculative_num_draft_tokens", lambda: 4),
    ):
        return utils.compute_num_reserved_tokens()

kept = {each: reserved(each) for each in ("EAGLE", "EAGLE3", "STANDALONE")}
print(json.dumps({"options": options, "reserved": kept}))
"""


@cache
def ask_sglang() -> dict[str, Any]:
    """
    Let SGLang parse the servers of all pages, in a process of its own: importing it takes seconds.

    Returns:
        ``options``: of its server, ours among them. ``reserved``: tokens of the context that it
        keeps for drafts where the largest depth is 3, by algorithm.
    """
    served = [
        words[2:]
        for each in PAGES.values()
        for words in each.commands
        if words[:2] == ["sglang", "serve"]
    ]
    done = run([sys.executable, "-c", _ASKED, json.dumps(served)], cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer

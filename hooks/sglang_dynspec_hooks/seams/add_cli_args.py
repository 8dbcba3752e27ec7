"""Add our flags to SGLang's argument parser."""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING, Any, Final

from sglang_dynspec_hooks.contract.seam import Kind, Seam

if TYPE_CHECKING:
    from collections.abc import Sequence

SEAM: Final = Seam(
    target="sglang.srt.server_args.ServerArgs.add_cli_args",
    kind=Kind.AFTER,
    parameters=("parser",),
    reason="`--enable-plugin dynspec` and its companions are flags of the server",
    removal="SGLang lets plugins declare their arguments",
)
#: Where `from_cli_args` finds which attribute of the namespace each of our flags is.
DESTS: Final = "_dynspec_dests"

logger = logging.getLogger("sglang_dynspec")


class Extend(argparse._StoreAction):
    """
    Collect the values of a repeated flag.

    SGLang turns its YAML file into flags that come before those of the command line, and refuses
    `append` actions there; it takes a `_StoreAction` with `nargs`.
    """

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - argparse's signature
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        """
        Add values to those of earlier occurrences.

        Args:
            parser: Unused.
            namespace: Where the values are kept.
            values: The values of this occurrence, a list because of `nargs="+"`.
            option_string: Unused.
        """
        earlier = getattr(namespace, self.dest, None) or []
        setattr(namespace, self.dest, [*earlier, *(values or ())])


def handler(result: None, parser: argparse.ArgumentParser) -> None:  # noqa: ARG001
    """
    Add a group of flags; one that another plugin added already is used as it is.

    Never raises: this runs in every server of an environment in which we are installed.

    Args:
        result: What SGLang's function returned, nothing.
        parser: SGLang's parser, changed in place.
    """
    try:
        _add_flags(parser)
    except Exception as error:  # noqa: BLE001
        logger.warning("flags_not_added error=%r", error)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    from sglang_dynspec.config.flags import FLAGS

    dests = {}
    group: Any = None
    for flag in FLAGS:
        action = parser._option_string_actions.get(flag.name)
        if action is None:
            # A parser that embeds SGLang's arguments may hand in a group, and groups do not nest.
            if group is None:
                is_parser = isinstance(parser, argparse.ArgumentParser)
                group = parser.add_argument_group("dynspec") if is_parser else parser
            action = group.add_argument(
                flag.name,
                dest=flag.dest,
                metavar=flag.metavar,
                help=flag.help,
                nargs=flag.nargs,
                default=None,
                action="store" if flag.nargs is None else Extend,
            )
        dests[flag.dest] = action.dest
    parser.set_defaults(**{DESTS: dests})

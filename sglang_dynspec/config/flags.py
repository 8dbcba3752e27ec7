"""
Our command-line flags, declared once as plain data.

The seam that adds them to SGLang's argument parser and ``dynspec flags`` both read `FLAGS`.
Standard library only: SGLang's launcher imports this even when we are not enabled.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """
    One flag, in the terms of `argparse.ArgumentParser.add_argument`.

    Attributes:
        name: The option string.

        dest: The attribute of the parsed namespace.

        metavar: The placeholder of its value in help texts.

        help: What it does, one sentence.

        nargs: ``"+"`` for a flag that takes several values and may be repeated, else None.
    """

    name: str
    dest: str
    metavar: str
    help: str
    nargs: str | None = None

    @property
    def usage(self) -> str:
        """
        The flag as a user types it, for example ``--dynspec-config FILE.toml``.
        """
        return f"{self.name} {self.metavar}" + (" ..." if self.nargs == "+" else "")


#: Every flag, in the order they are shown.
FLAGS = (
    Flag(
        name="--enable-plugin",
        dest="enable_plugin",
        metavar="NAME",
        nargs="+",
        help="Enable installed plugins by name; 'dynspec' enables dynamic speculation.",
    ),
    Flag(
        name="--dynspec-policy",
        dest="dynspec_policy",
        metavar="POLICY",
        help="Policy that decides each round's depth: a name that 'dynspec policies' lists, or "
        "package.module:Class. Default: goodput.",
    ),
    Flag(
        name="--dynspec-option",
        dest="dynspec_option",
        metavar="KEY=VALUE",
        nargs="+",
        help="A configuration field (depths=0,1,3) or else an option of the policy "
        "(batch_size=16). JSON values are understood.",
    ),
    Flag(
        name="--dynspec-config",
        dest="dynspec_config",
        metavar="FILE.toml",
        help="Read the configuration from a TOML file: fields at the top level, the policy's "
        "options under [options]. Other flags win over it.",
    ),
    Flag(
        name="--dynspec-trace",
        dest="dynspec_trace",
        metavar="FILE",
        help="Record every round in FILE as JSON Lines, for 'dynspec report'. Replaces FILE.",
    ),
)

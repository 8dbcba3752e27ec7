"""Our flags: on the command line, in SGLang's YAML file, and beside another plugin's."""

import argparse
from pathlib import Path

import pytest

from sglang_dynspec.config.flags import FLAGS
from sglang_dynspec_hooks import entry
from sglang_dynspec_hooks.seams import add_cli_args, from_cli_args
from tests.seams.harness import Resolver, run


def parser_with_flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    add_cli_args.handler(None, parser)
    return parser


def test_every_flag_is_added() -> None:
    parser = parser_with_flags()
    assert [flag.name for flag in FLAGS] == [
        "--enable-plugin",
        "--dynspec-policy",
        "--dynspec-option",
        "--dynspec-config",
        "--dynspec-trace",
    ]
    for flag in FLAGS:
        assert parser._option_string_actions[flag.name].dest == flag.dest


def test_repeated_flags_extend() -> None:
    parser = parser_with_flags()
    line = "--enable-plugin a --dynspec-option x=1 y=2 --enable-plugin b c --dynspec-option x=3"
    args = parser.parse_args(line.split())
    assert args.enable_plugin == ["a", "b", "c"]
    assert args.dynspec_option == ["x=1", "y=2", "x=3"]


def test_nothing_given_is_nothing() -> None:
    args = parser_with_flags().parse_args([])
    assert [getattr(args, flag.dest) for flag in FLAGS] == [None] * len(FLAGS)


def test_another_plugins_flag_is_used_as_it_is() -> None:
    parser = argparse.ArgumentParser()
    theirs = parser.add_argument("--enable-plugin", action="append", dest="plugins")
    add_cli_args.handler(None, parser)
    assert parser._option_string_actions["--enable-plugin"] is theirs
    args = parser.parse_args(["--enable-plugin", "other, dynspec"])
    assert getattr(args, add_cli_args.DESTS)["enable_plugin"] == "plugins"
    assert list(from_cli_args._names(args.plugins)) == ["other", "dynspec"]


def test_a_group_will_do() -> None:
    parser = argparse.ArgumentParser()
    add_cli_args.handler(None, parser.add_argument_group("sglang"))
    assert parser.parse_args(["--dynspec-policy", "never"]).dynspec_policy == "never"


def test_a_parser_that_refuses_our_flags_is_left_alone(our_log: pytest.LogCaptureFixture) -> None:
    add_cli_args.handler(None, object())  # type: ignore[arg-type]
    assert "flags_not_added" in our_log.text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--enable-plugin dynspec", True),
        ("--enable-plugin=dynspec --tp-size 1", True),
        ("--enable-plugin other dynspec", True),
        ("--enable-plugin other,dynspec", True),
        ("--enable-plugin other --served-model-name dynspec", False),
        ("--served-model-name dynspec", False),
        ("", False),
    ],
)
def test_the_flag_is_seen_before_it_is_parsed(line: str, expected: bool) -> None:
    assert entry.names_plugin(line.split()) is expected


@pytest.mark.parametrize("flags", [["--enable-plugin", "other"], []])
def test_not_named_is_not_enabled(resolver: Resolver, flags: list[str]) -> None:
    answer = resolver.ask(argv=resolver.argv(*flags, enabled=False))
    assert answer["config"] is None
    assert answer["exported"] is None
    assert answer["resolved"]["speculative_num_steps"] == 5


@pytest.mark.parametrize("name", ["dynspek", "Dynspec", "dyn-spec", "sglang-dynspec"])
def test_a_misspelt_name_is_refused(resolver: Resolver, name: str) -> None:
    assert resolver.refusal(resolver.argv("--enable-plugin", name, enabled=False)) == (
        f"expected --enable-plugin dynspec; found {name!r}, which is no installed plugin; "
        "write dynspec"
    )


def test_an_installed_plugin_is_not_a_misspelling() -> None:
    assert from_cli_args._misspelt(["dynspec_cpu", "other", "dynspec"]) is None
    assert from_cli_args._misspelt(["dynspec_gpu"]) == "dynspec_gpu"


def test_a_command_line_after_ours_is_not_ours(resolver: Resolver) -> None:
    ours = resolver.ask(argv=resolver.argv(), keep_environ=True)
    theirs = resolver.ask(argv=resolver.argv(enabled=False), keep_environ=True)
    assert ours["exported"] is not None
    assert theirs["exported"] is None
    assert theirs["config"] is None


def test_flags_without_the_plugin_are_refused(resolver: Resolver) -> None:
    argv = resolver.argv("--dynspec-policy", "never", "--dynspec-option", "a=1", enabled=False)
    assert resolver.refusal(argv) == (
        "expected --enable-plugin dynspec beside --dynspec-policy, --dynspec-option; "
        "found no such flag; "
        "add --enable-plugin dynspec, or drop --dynspec-policy, --dynspec-option"
    )


def test_every_source_of_the_configuration(resolver: Resolver, tmp_path: Path) -> None:
    file = tmp_path / "dynspec.toml"
    file.write_text('policy = "always"\nmin_dwell = 9\nseed = 1\n', encoding="utf-8")
    answer = resolver.ask(
        argv=resolver.argv("--dynspec-config", str(file), "--dynspec-option", "seed=2"),
        environ={"SGLANG_DYNSPEC_MIN_DWELL": "1", "SGLANG_DYNSPEC_ERROR_BUDGET": "3"},
    )
    config = answer["config"]
    assert (config["policy"], config["min_dwell"], config["seed"]) == ("always", 9, 2)
    assert config["error_budget"] == 3


def test_a_yaml_file_and_the_command_line_after_it(resolver: Resolver, tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(
        "enable-plugin: [dynspec]\n"
        "dynspec-policy: threshold\n"
        "dynspec-option:\n"
        "  - batch_size=8\n"
        "  - depths=0,2\n",
        encoding="utf-8",
    )
    argv = resolver.argv("--dynspec-option", "batch_size=16", "--config", str(file), enabled=False)
    config = resolver.ask(argv=argv)["config"]
    assert config["policy"] == "threshold"
    assert config["depths"] == [0, 2]
    assert config["options"] == {"batch_size": 16}


@pytest.mark.slow
def test_help_shows_the_flags() -> None:
    result = run("-m", "sglang.launch_server", "--help")
    assert result.status == 0
    for flag in FLAGS:
        assert flag.name in result.stdout

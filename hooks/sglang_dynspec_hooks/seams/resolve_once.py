"""Choose the speculative arguments before SGLang resolves them, check the result afterwards."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from sglang_dynspec_hooks import carried_config
from sglang_dynspec_hooks.contract.seam import PLUGIN, Kind, Seam
from sglang_dynspec_hooks.launch import warm_up
from sglang_dynspec_hooks.launch.refusals import Stage, refuse
from sglang_dynspec_hooks.process import exits_on_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_dynspec.config import ResolvedConfig

SEAM: Final = Seam(
    target="sglang.srt.server_args.ServerArgs.resolve_once",
    # AROUND: the two halves share the configuration, and arguments are resolved by their first call
    # only, which BEFORE and AFTER could not tell from the others.
    kind=Kind.AROUND,
    parameters=("self",),
    reason="the one function that both `sglang serve` and `sgl.Engine` pass before a model loads",
    removal="SGLang calls plugins with the arguments before and after it resolves them",
)


def handler(original: Callable[[Any], None], self: Any) -> None:
    """
    Resolve arguments of ours, or leave any others to SGLang.

    Args:
        original: SGLang's function.
        self: The `ServerArgs`.

    Raises:
        ConfigError: For an engine started from Python, when the server is refused.
        SystemExit: With status 78, for one started from the command line.
    """
    is_ours = not getattr(self, "_resolution_finished", False) and not getattr(
        self, "_resolution_failed", False
    )
    is_command = getattr(self, carried_config.FROM_COMMAND_LINE, False)
    with exits_on_error() if is_command else contextlib.nullcontext():
        config = _prepare(self) if is_ours else None
    original(self)
    if config is None:
        return
    with exits_on_error() if is_command else contextlib.nullcontext():
        try:
            _finish(self, config)
        except BaseException:
            # As SGLang marks its own failures: the arguments must not pass for resolved later.
            self._resolution_finished = False
            self._resolution_failed = True
            raise


def _prepare(server_args: Any) -> ResolvedConfig | None:
    """Declare the largest depth, as an argument the launcher settled before resolution."""
    config = carried_config.requested(server_args)
    if config is None:
        return None
    from sglang.srt.arg_groups.overrides import declare_resolution, resolving_view

    view = resolving_view(server_args)
    refuse(view, stage=Stage.ASKED, allow_unproved=config.allow_unproved)
    resolved = config.resolve(view.speculative_num_steps)
    largest = resolved.depths[-1]
    # Declared here and not in the speculative step: SGLang chooses the attention backend first,
    # and by whether the drafts form a chain.
    declare_resolution(
        server_args,
        PLUGIN,
        speculative_num_steps=largest,
        speculative_eagle_topk=1,
        speculative_num_draft_tokens=largest + 1,
    )
    return resolved


def _finish(server_args: Any, config: ResolvedConfig) -> None:
    """Refuse what SGLang resolved to, try the policy, and say what will run."""
    from sglang.srt.arg_groups.overrides import resolving_view

    from sglang_dynspec.loading.plugins import load_policy, plugin_manager
    from sglang_dynspec.log import structured
    from sglang_dynspec.policy import Limits
    from sglang_dynspec_hooks.identity import identity_of

    view = resolving_view(server_args)
    refuse(view, stage=Stage.RESOLVED, allow_unproved=config.allow_unproved)
    cap = view.max_running_requests
    # Built here only to fail here: the scheduler, which needs them, first loads the model.
    plugin_manager()
    limits = Limits(
        depths=config.depths,
        max_running_requests=cap,
        seed=config.seed,
        identity=identity_of(view),
    )
    load_policy(config, limits)
    carried_config.attach(server_args, config)
    warm_up.register(view)
    structured(None, "sglang_dynspec").info(
        "dynspec_enabled",
        policy=config.policy,
        depths=",".join(map(str, config.depths)),
        upkeep_window=config.upkeep_window,
        plain_graphs=config.plain_graphs,
        max_running_requests="by KV memory, as on a plain server" if cap is None else cap,
    )

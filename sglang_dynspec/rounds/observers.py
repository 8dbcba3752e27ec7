"""
Telling plugins about rounds, so that none of them can hurt the server or each other.
"""

from collections.abc import Callable

import pluggy
from structlog.stdlib import BoundLogger

from sglang_dynspec.account.counters import Counters
from sglang_dynspec.log import describe

#: For each plugin that implements a hook: its name, and what calls it alone.
Callers = tuple[tuple[str, Callable[..., object]], ...]


class Observers:
    """
    The plugins that implement the per-round hooks, found once.

    Each plugin gets a caller of its own: pluggy stops at the first exception, and one plugin's
    fault must not silence the others.

    Args:
        hooks: The plugin manager, or None for no observers.

        counters: Where faults are counted.

        log: A structlog logger.

    Attributes:
        before_round: Callers of `dynspec_before_round`; empty if nobody implements it.

        after_round: The same for `dynspec_after_round`.

        depth_changed: The same for `dynspec_depth_changed`.
    """

    __slots__ = ("_counters", "_log", "after_round", "before_round", "depth_changed")

    def __init__(
        self, hooks: pluggy.PluginManager | None, *, counters: Counters, log: BoundLogger
    ) -> None:
        self._counters = counters
        self._log = log
        self.before_round = _callers(hooks, "dynspec_before_round")
        self.after_round = _callers(hooks, "dynspec_after_round")
        self.depth_changed = _callers(hooks, "dynspec_depth_changed")

    def tell(self, hook: str, callers: Callers, **arguments: object) -> None:
        """
        Tell every plugin that implements a hook.

        Args:
            hook: Its name, for the log.

            callers: Whom to tell.

            **arguments: What the hook takes.

        Raises:
            KeyboardInterrupt: Somebody wants the process to stop.
        """
        for plugin, call in callers:
            try:
                call(**arguments)
            except KeyboardInterrupt:
                raise
            # SystemExit included: an observer has no business stopping the server.
            except BaseException as error:  # noqa: BLE001
                self._fault(plugin, hook, error)

    def _fault(self, plugin: str, hook: str, error: BaseException) -> None:
        self._counters.note(
            "observer_errors",
            self._log.error,
            "observer_failed",
            plugin=plugin,
            hook=hook,
            error=describe(error),
            note="serving goes on; later faults are only counted",
        )


def _callers(hooks: pluggy.PluginManager | None, name: str) -> Callers:
    if hooks is None:
        return ()
    # In the order pluggy would call them: its list holds the first to call last.
    plugins = [found.plugin for found in reversed(getattr(hooks.hook, name).get_hookimpls())]
    return tuple(
        (
            hooks.get_name(plugin) or repr(plugin),
            hooks.subset_hook_caller(name, [other for other in plugins if other is not plugin]),
        )
        for plugin in plugins
    )

"""Install the CPU engine in one of SGLang's processes, or refuse."""

import importlib.util
import inspect
import pkgutil

from sglang_dynspec.errors import SeamError
from sglang_dynspec_cpu import seams
from sglang_dynspec_cpu.environment import SHADOW
from sglang_dynspec_hooks.contract.seam import Seam
from sglang_dynspec_hooks.process import Role


def install(role: Role) -> None:
    """
    Register the hooks of this process.

    The launcher gets the hook that keeps the overlap scheduler; a scheduler gets the attention
    backends, a torch form of one kernel and the `kv_figures`; the others get nothing.

    Args:
        role: What this process is to SGLang.

    Raises:
        SeamError: When ``sgl_kernel`` is not the shadow, or a hooked function is not as known.
    """
    if role is Role.BYSTANDER:
        return
    _require_shadow()
    if role is Role.SCHEDULER:
        from sglang_dynspec_cpu import attention

        attention.install()
        hooks = seams.scheduler()
    else:
        hooks = seams.launcher()

    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for hook in hooks:
        _require_known(hook.seam)
        HookRegistry.register(hook.seam.target, hook.handler, HookType[hook.seam.kind.value])


def _require_shadow() -> None:
    # Found, not imported: the CUDA wheel may fail to load without a GPU.
    spec = importlib.util.find_spec("sgl_kernel")
    found = "none" if spec is None else str(spec.origin)
    if not found.startswith(str(SHADOW)):
        raise SeamError(
            expected=f"the sgl_kernel of {SHADOW} first on PYTHONPATH",
            found=found,
            remedy="start in the environment of sglang_dynspec_cpu.engine.prepare_environment",
        )


def _require_known(seam: Seam) -> None:
    """
    Refuse a function that is not there or has other parameters.

    SGLang would log a hook that does not apply and go on without it.
    """
    try:
        parameters = tuple(inspect.signature(pkgutil.resolve_name(seam.target)).parameters)
        found = f"({', '.join(parameters)})"
    except (ImportError, AttributeError) as error:
        parameters, found = (), str(error)
    if parameters != seam.parameters:
        raise SeamError(
            expected=f"{seam.target}({', '.join(seam.parameters)})",
            found=found,
            remedy=f"install sglang{seam.sglang}",
        )

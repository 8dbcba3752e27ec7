"""Seam: the body of ``/set_internal_state``. A text or a boolean does not pass for a number."""

from __future__ import annotations

from typing import Any

from sglang_dynspec_hooks.contract.seam import Kind, Seam

SEAM = Seam(
    target="sglang.srt.managers.io_struct.BaseReq.__get_pydantic_core_schema__",
    kind=Kind.AFTER,
    parameters=("cls", "source", "handler"),
    reason='its reader turns "1" and true into 1, before anything of ours sees them',
    removal="SGLang reads the values of /set_internal_state strictly",
)


def handler(result: Any, cls: type, _source: Any, _handler: Any) -> Any:
    """Look at our settings before SGLang's reader does; other requests and settings stay its."""
    if cls.__name__ != "SetInternalStateReq":
        return result
    from pydantic_core import core_schema

    return core_schema.no_info_before_validator_function(_require_numbers, result)


def _require_numbers(body: Any) -> Any:
    settings = body.get("server_args") if isinstance(body, dict) else None
    for key, value in settings.items() if isinstance(settings, dict) else ():
        if key.startswith("dynspec_") and type(value) not in (int, float):
            raise ValueError(f"expected {key} to be a number; found {value!a:.80}")
    return body

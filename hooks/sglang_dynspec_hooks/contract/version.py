"""Which SGLang this package was written for, and the gate that checks it."""

from __future__ import annotations

import logging
import os
from importlib import metadata
from typing import TYPE_CHECKING, Final

from packaging.specifiers import SpecifierSet

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The supported range, stated once: the runtime gate, the seam records, `dynspec doctor` and
#: the tests read it here, and a test compares it with the extra in `pyproject.toml`.
SUPPORTED: Final = "==0.5.23"
#: Set to 1 to start on another version; the shape of every seam is still checked.
ALLOW_VERSION: Final = "SGLANG_DYNSPEC_ALLOW_VERSION"

logger = logging.getLogger("sglang_dynspec")


def installed_version() -> str:
    """
    Read the installed SGLang's version from its metadata, without importing it.

    Returns:
        The version.

    Raises:
        SeamError: When no distribution named `sglang` is installed.
    """
    try:
        return metadata.version("sglang")
    except metadata.PackageNotFoundError:
        from sglang_dynspec.errors import SeamError

        raise SeamError(
            expected=f"sglang{SUPPORTED}",
            found="no installed distribution named sglang",
            remedy='pip install "sglang-dynspec[sglang]"',
        ) from None


def is_supported(version: str, specifier: str = SUPPORTED) -> bool:
    """
    Tell whether `version` is in the range `specifier`.

    Args:
        version: A PEP 440 version.
        specifier: A PEP 440 version specifier.

    Returns:
        True when the version is in the range; pre-releases and local builds count.
    """
    return SpecifierSet(specifier).contains(version, prereleases=True)


def require_supported(environ: Mapping[str, str] = os.environ) -> str:
    """
    Stop on an SGLang this package was not written for.

    Args:
        environ: Where `SGLANG_DYNSPEC_ALLOW_VERSION` is looked up.

    Returns:
        The installed version.

    Raises:
        SeamError: When SGLang is missing, or outside the supported range and the range was not
            lifted.
    """
    version = installed_version()
    if is_supported(version):
        return version
    if environ.get(ALLOW_VERSION) == "1":
        logger.warning(
            "sglang_version_not_supported installed=%s supported=%s: started because %s=1",
            version,
            SUPPORTED,
            ALLOW_VERSION,
        )
        return version
    from sglang_dynspec.errors import SeamError

    raise SeamError(
        expected=f"sglang{SUPPORTED}",
        found=f"sglang {version}",
        remedy=f"install a supported version, or set {ALLOW_VERSION}=1 to try this one",
    )

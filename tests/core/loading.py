"""Loading configurations, as the tests of configuration do it."""

import pytest

from sglang_dynspec import Config, ConfigError


def load(*pairs, flags=None, file=None, environ=None):
    return Config.load(
        flags=flags, option_pairs=list(pairs), config_file=file, environ=environ or {}
    )


def refusal(*pairs, **sources):
    with pytest.raises(ConfigError) as caught:
        load(*pairs, **sources)
    return caught.value

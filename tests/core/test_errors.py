import pickle

import pytest

from sglang_dynspec import ConfigError, DynspecError, SeamError, TraceError


@pytest.mark.parametrize("kind", [ConfigError, SeamError, TraceError])
def test_an_explained_error_says_three_things(kind):
    error = kind(expected="a", found="b", remedy="do c")
    assert str(error) == "expected a; found b; do c"
    assert (error.expected, error.found, error.remedy) == ("a", "b", "do c")
    assert isinstance(error, DynspecError)


def test_all_three_are_required():
    with pytest.raises(TypeError, match="remedy"):
        ConfigError(expected="a", found="b")


def test_a_config_error_is_a_value_error():
    assert issubclass(ConfigError, ValueError)


def test_an_explained_error_survives_pickling():
    error = pickle.loads(pickle.dumps(SeamError(expected="a", found="b", remedy="c")))  # noqa: S301
    assert type(error) is SeamError
    assert (error.expected, error.found, error.remedy) == ("a", "b", "c")

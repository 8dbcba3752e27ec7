"""The plugin stays out of every server but its own, and never fails in silence."""

import pytest

from sglang_dynspec.errors import SeamError
from sglang_dynspec_cpu import installation
from sglang_dynspec_cpu.entry import SWITCH
from sglang_dynspec_hooks.contract.seam import Kind, Seam
from tests.cpu.test_environment import run_python

HEAVY = ("torch", "sglang", "sgl_kernel", "pydantic", "sglang_dynspec")


@pytest.mark.parametrize("value", ["", "0", "true"])
def test_turned_off_it_imports_the_standard_library_alone(value):
    status, said = run_python(
        f"""
        import sys
        from sglang_dynspec_cpu.entry import activate
        activate()
        print([name for name in {HEAVY} if name in sys.modules])
        """,
        {SWITCH: value},
    )
    assert (status, said) == (0, "[]")


def test_without_the_shadow_it_stops_the_process():
    status, said = run_python(
        "from sglang_dynspec_cpu.entry import activate; activate()", {SWITCH: "1"}
    )
    assert status == 1
    assert said.startswith("dynspec_cpu: expected the sgl_kernel of ")
    assert "; found " in said
    assert said.endswith(
        "; start in the environment of sglang_dynspec_cpu.engine.prepare_environment"
    )


def test_the_detokenizer_gets_nothing():
    status, said = run_python(
        """
        import sys
        from sglang_dynspec_cpu.entry import activate
        def run_detokenizer_process():
            activate()
        run_detokenizer_process()
        print("torch" in sys.modules, "sglang" in sys.modules)
        """,
        {SWITCH: "1"},
    )
    assert (status, said) == (0, "False False")


def seam(target, *parameters):
    return Seam(target=target, kind=Kind.AROUND, parameters=parameters, reason="", removal="")


def test_a_known_function_is_accepted():
    installation._require_known(seam("textwrap.indent", "text", "prefix", "predicate"))


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("textwrap.indent", r"found \(text, prefix, predicate\)"),
        ("textwrap.outdent", "found .*outdent"),
        ("no_such_module.function", "found No module named"),
    ],
)
def test_a_changed_or_missing_function_is_refused(target, found):
    with pytest.raises(SeamError, match=found):
        installation._require_known(seam(target, "text"))


def test_a_scheduler_gets_all_its_seams():
    status, said = run_python("""
        from sglang_dynspec_cpu.environment import prepare_environment
        prepare_environment()
        import warnings
        warnings.simplefilter("ignore")
        from sglang.srt.plugins import load_plugins
        def run_scheduler_process():
            load_plugins()
        run_scheduler_process()
        from sglang_dynspec_hooks.contract.seam import confirm_wrapped
        from sglang_dynspec_cpu import seams
        from sglang.srt.layers.attention import attention_registry
        confirm_wrapped(seams.scheduler())
        print(attention_registry.ATTENTION_BACKENDS["torch_native"].__module__)
    """)
    assert (status, said) == (0, "sglang_dynspec_cpu.attention")

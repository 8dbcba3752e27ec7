import sys
from importlib.metadata import EntryPoint

import pytest

from sglang_dynspec import Config, ConfigError, Limits, Plan, Policy, hookimpl
from sglang_dynspec.loading import plugins
from sglang_dynspec.loading.infos import list_policies, policy_info
from sglang_dynspec.policies import Threshold

MODULE = '''
"""Policies of somebody."""

from sglang_dynspec import Plan, Policy


class Mine(Policy):
    """Decides as its author likes."""

    def __init__(self, *, depth: int = 1, names: tuple[str, ...] = (), label: str = "") -> None:
        self.depth, self.names, self.label = depth, names, label

    def decide(self, observation):
        return Plan(depth=self.depth)


class Needy(Policy):
    def __init__(self, *, must: int) -> None:
        self.must = must

    def decide(self, observation):
        return Plan(depth=0)


class Touchy(Mine):
    """Refuses everything."""

    def configure(self, limits):
        raise KeyError("touchy")


class Unfinished(Policy):
    pass


class NotAPolicy:
    pass
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Put the module `somebodys_policies` where it can be imported."""
    (tmp_path / "somebodys_policies.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("somebodys_policies", None)


@pytest.fixture
def fresh_manager():
    """Forget the plugin manager before and after."""
    plugins.plugin_manager.cache_clear()
    yield
    plugins.plugin_manager.cache_clear()


def offer(**policies):
    """Let a plugin register policies by name."""

    class Plugin:
        @hookimpl
        def dynspec_register_policies(self):
            return policies

    plugins.plugin_manager().register(Plugin())


def load(policy, limits=None, **options):
    return plugins.load_policy(
        Config(policy=policy, options=options), limits or Limits(depths=(0, 1, 3))
    )


def refusal(policy, **options):
    with pytest.raises(ConfigError) as caught:
        load(policy, **options)
    return caught.value


class TestByName:
    def test_built_in_ones(self):
        policy = load("threshold", batch_size=5)
        assert type(policy) is Threshold
        assert policy.batch_size == 5
        assert policy.limits.depths == (0, 1, 3)

    def test_unknown(self):
        error = refusal("treshold")
        assert error.found == "'treshold'"
        assert error.remedy.startswith("did you mean threshold? accepted: always, ")
        assert refusal("").found == "''"

    def test_a_policy_may_refuse(self):
        with pytest.raises(ConfigError, match="never switch off"):
            load("threshold", Limits(depths=(0, 1), max_running_requests=8), batch_size=9)

    def test_it_is_told_of_the_calibration(self, tmp_path):
        config = Config(policy="never", calibration=tmp_path / "costs.json")
        policy = plugins.load_policy(config, Limits(depths=(0, 1, 3)))
        assert policy.limits.calibration == tmp_path / "costs.json"

    def test_one_registered_by_a_plugin(self, fresh_manager):
        class Theirs(Policy):
            """Theirs."""

            def decide(self, observation):
                return Plan(depth=0)

        offer(theirs=Theirs)
        assert type(load("theirs")) is Theirs
        info = {info.name: info for info in list_policies()}["theirs"]
        assert (info.summary, info.target) == ("Theirs.", f"{__name__}:{Theirs.__qualname__}")

    def test_a_name_taken_twice(self, fresh_manager):
        offer(never=Threshold)
        assert refusal("never").expected == "one policy called never"


class TestByPath:
    def test_a_class(self, module):
        policy = load("somebodys_policies:Mine", depth=3)
        assert (type(policy).__name__, policy.depth) == ("Mine", 3)

    def test_one_in_the_current_directory(self, tmp_path, monkeypatch):
        (tmp_path / "policies_right_here.py").write_text(MODULE)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
        before = list(sys.path)
        assert load("policies_right_here:Mine").depth == 1
        assert sys.path == before
        del sys.modules["policies_right_here"]

    def test_no_such_module(self):
        error = refusal("no_such_package.policies:Mine")
        assert error.found == "no module named 'no_such_package'"
        assert error.remedy == "set PYTHONPATH or install it"

    def test_a_module_that_misses_another(self, module):
        (module / "misses.py").write_text("import no_such_library")
        error = refusal("misses:Mine")
        assert error.found == "no module named 'no_such_library', which it imports"
        assert error.remedy == "install no_such_library"

    @pytest.mark.parametrize(
        "line", ["1 / 0", "x = ", "import sys; sys.nothing", "import sys; sys.exit()"]
    )
    def test_a_module_that_does_not_import(self, module, line):
        (module / "broken.py").write_text(line)
        assert refusal("broken:Mine").expected == "to import broken"

    def test_no_such_class(self, module):
        error = refusal("somebodys_policies:Mien")
        assert error.expected == "a class Mien in somebodys_policies"
        assert error.remedy.startswith("did you mean Mine? accepted: Mine, Needy, ")

    @pytest.mark.parametrize("name", ["NotAPolicy", "Plan"])
    def test_no_policy(self, module, name):
        error = refusal(f"somebodys_policies:{name}")
        assert (
            error.expected == f"somebodys_policies:{name} to be a subclass of sglang_dynspec.Policy"
        )

    @pytest.mark.parametrize("name", ["Unfinished", "Policy"])
    def test_an_abstract_class(self, module, name):
        assert refusal(f"somebodys_policies:{name}").found == "no decide"

    @pytest.mark.parametrize("name", ["a:", ":b", "a b:c", "a:b c", "a:b:c"])
    def test_a_malformed_path(self, name):
        assert refusal(name).expected == "a policy's name, or package.module:Class"


class TestOptions:
    def test_unknown(self, module):
        error = refusal("somebodys_policies:Mine", dept=1)
        assert error.found == "'dept'"
        assert error.remedy.startswith("did you mean depth or depths? accepted: ")

    def test_a_mistyped_field_of_the_configuration(self):
        assert "did you mean min_dwell?" in refusal("never", min_dwel=1).remedy

    def test_missing(self, module):
        error = refusal("somebodys_policies:Needy")
        assert error.expected.endswith("to be given its option must")

    @pytest.mark.parametrize("depth", ["x", 1.5, True, None, [1]])
    def test_of_the_wrong_type(self, module, depth):
        error = refusal("somebodys_policies:Mine", depth=depth)
        assert error.expected.startswith("option depth of the policy somebodys_policies:Mine to be")
        assert error.found == repr(depth)

    def test_text_is_converted(self, module):
        policy = load("somebodys_policies:Mine", depth="3", names=["a", "b"], label=7)
        assert (policy.depth, policy.names, policy.label) == (3, ("a", "b"), "7")

    def test_what_the_policy_raises(self, module):
        error = refusal("somebodys_policies:Touchy", depth=1)
        assert (
            error.expected
            == "the policy somebodys_policies:Touchy to accept its options {'depth': 1}"
        )
        assert "KeyError: 'touchy'" in error.found

    def test_a_policy_that_exits(self, module):
        (module / "exits.py").write_text(
            "from somebodys_policies import Mine\n"
            "class Exits(Mine):\n"
            "    def configure(self, limits):\n"
            "        raise SystemExit(0)\n"
        )
        assert "SystemExit: 0" in refusal("exits:Exits").found

    def test_annotations_that_cannot_be_read(self, module):
        (module / "odd.py").write_text(
            "from sglang_dynspec import Policy\n"
            "class Odd(Policy):\n"
            "    def __init__(self, *, a: 'Missing' = 1): ...\n"
            "    def decide(self, observation): ...\n"
        )
        assert "NameError" in refusal("odd:Odd", a=1).found


class TestList:
    def test_built_in_ones(self):
        infos = {info.name: info for info in list_policies()}
        assert {"always", "depth_table", "goodput", "never", "threshold"} <= infos.keys()
        info = infos["threshold"]
        assert info.target == "sglang_dynspec.policies.threshold:Threshold"
        assert info.summary.startswith("Speculate up to a batch size")
        assert info.options == {"batch_size": "None", "hysteresis": "None", "depth": "None"}

    def test_one_that_does_not_load_says_so(self, monkeypatch):
        broken = EntryPoint(name="broken", value="no_such:Thing", group="g")
        monkeypatch.setattr(plugins, "entry_points", lambda group: [broken])
        (info,) = list_policies()
        assert "no module named 'no_such'" in info.summary
        assert info.options == {}

    def test_one_that_says_nothing_of_itself(self, fresh_manager):
        class Silent(Policy):
            def decide(self, observation):
                return Plan(depth=0)

        offer(silent=Silent)
        assert policy_info("silent").documentation == ""

    def test_a_default_that_cannot_be_written_hides_no_other(self, fresh_manager):
        class Shy:
            def __repr__(self):
                raise ValueError("no")

        class Odd(Policy):
            def __init__(self, *, a: object = Shy()) -> None:
                self.a = a

            def decide(self, observation):
                return Plan(depth=0)

        offer(odd=Odd)
        infos = {info.name: info for info in list_policies()}
        assert "; found ValueError: no (" in infos["odd"].documentation
        assert infos["never"].summary == "Decode plainly in every round."
        # And asked for by its name it says the same, without a traceback.
        with pytest.raises(ConfigError) as caught:
            policy_info("odd")
        assert caught.value.expected == (
            "the policy odd to have options and documentation that can be shown"
        )
        assert str(caught.value) == infos["odd"].documentation

    @pytest.mark.parametrize("documentation", [7, ["a"]])
    def test_documentation_that_is_no_text(self, fresh_manager, documentation):
        class Odd(Policy):
            __doc__ = documentation

            def decide(self, observation):
                return Plan(depth=0)

        offer(odd=Odd)
        with pytest.raises(ConfigError, match="; found AttributeError: "):
            policy_info("odd")

    def test_required_options_are_named(self, module, fresh_manager):
        import somebodys_policies

        offer(needy=somebodys_policies.Needy)
        info = {info.name: info for info in list_policies()}["needy"]
        assert info.options == {"must": "required"}


class TestManager:
    def test_there_is_one(self):
        assert plugins.plugin_manager() is plugins.plugin_manager()

    def test_a_hook_that_does_not_exist(self, fresh_manager, monkeypatch):
        class Plugin:
            @hookimpl
            def dynspec_after_rond(self):
                pass

        def load_plugin(manager, group):
            manager.register(Plugin(), name="typo")

        monkeypatch.setattr("pluggy.PluginManager.load_setuptools_entrypoints", load_plugin)
        with pytest.raises(ConfigError, match="dynspec_after_rond") as caught:
            plugins.plugin_manager()
        assert caught.value.remedy == "correct or uninstall that plugin"

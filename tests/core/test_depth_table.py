import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_dynspec import ConfigError, Limits, Observation
from sglang_dynspec.policies import DepthTable

TABLE = {"1-16": 3, "17-64": 1, "65-": 0}


def depths_at(policy, sizes, depths=tuple(range(17))):
    policy.configure(Limits(depths=depths))
    return [
        policy.decide(
            Observation(
                batch_size=size,
                padded_batch_size=size,
                running=size,
                waiting=0,
                seq_len_sum=0,
                seq_len_max=0,
                kv_free=1.0,
                depths=depths,
                depth=0,
                depth_age=0,
            )
        ).depth
        for size in sizes
    ]


def refusal(**options):
    with pytest.raises(ConfigError) as caught:
        DepthTable(**options)
    return caught.value


class TestForms:
    def test_table(self):
        policy = DepthTable(table=TABLE)
        sizes = [0, 1, 16, 17, 64, 65, 10_000]
        assert depths_at(policy, sizes) == [3, 3, 3, 1, 1, 0, 0]

    def test_table_in_any_order_with_a_single_size(self):
        policy = DepthTable(table={"3 - 9": 1, "10-": 0, "1-1": 4, "2": 2})
        assert depths_at(policy, [1, 2, 3, 9, 10]) == [4, 2, 1, 1, 0]

    def test_vllm(self):
        policy = DepthTable(vllm=[[17, 64, 1], [1, 16, 3]])
        # As in vLLM, above the last row its depth goes on.
        assert depths_at(policy, [1, 16, 17, 64, 65, 999]) == [3, 3, 1, 1, 1, 1]

    def test_trtllm(self):
        policy = DepthTable(trtllm={"32": 1, "4": 4, "8": 2})
        assert depths_at(policy, [1, 4, 5, 8, 9, 32, 33]) == [4, 4, 2, 2, 1, 1, 0]

    def test_trtllm_with_numbers_for_keys(self):
        assert depths_at(DepthTable(trtllm={4: 4}), [4, 5]) == [4, 0]

    def test_the_reason_names_the_row(self, observe):
        policy = DepthTable(table=TABLE)
        policy.configure(Limits(depths=(0, 1, 3)))
        assert policy.decide(observe(20)).reason == "row 17-64: 1"
        assert policy.decide(observe(70)).reason == "row 65-: 0"

    def test_plans_are_built_once(self, observe):
        policy = DepthTable(table=TABLE)
        policy.configure(Limits(depths=(0, 1, 3)))
        assert policy.decide(observe(2)) is policy.decide(observe(3))

    def test_exactly_one_form(self):
        assert refusal().found == "none"
        assert refusal(table=TABLE, trtllm={"4": 1}).found == "table and trtllm"


class TestRefusals:
    @pytest.mark.parametrize("form", [{"table": {}}, {"vllm": []}, {"trtllm": {}}])
    def test_empty(self, form):
        error = refusal(**form)
        assert error.found == "an empty table"
        assert error.expected.startswith(f"{next(iter(form))} to look like ")

    def test_overlap(self):
        error = refusal(table={"1-16": 3, "16-": 0})
        assert error.found == "the rows 1-16: 3 and 16-: 0"
        assert error.remedy.startswith("end the first at 15")
        assert "overlap" in refusal(vllm=[[1, 8, 3], [4, 9, 1]]).expected
        assert "overlap" in refusal(table={"1-": 3, "5-": 0}).expected

    def test_gaps(self):
        assert refusal(table={"1-8": 3, "17-": 0}).found == "no row for batch sizes 9 to 16"
        assert refusal(table={"2-": 3}).found == "no row for batch sizes 1 to 1"
        assert refusal(vllm=[[2, 8, 3]]).found == "no row for batch sizes 1 to 1"
        assert refusal(vllm=[[1, 8, 3], [10, 12, 1]]).found == "no row for batch sizes 9 to 9"

    def test_no_row_above_the_last(self):
        error = refusal(table={"1-16": 3, "17-64": 1})
        assert error.found == "no row for batch sizes 65 and up"
        assert error.remedy == "add a row for 65-; depth 0 is plain"

    def test_a_backward_range(self):
        error = refusal(table={"16-1": 3})
        assert error.found == "the row 16-1: 3"
        assert error.remedy == "write 1-16"
        assert refusal(vllm=[[8, 1, 3]]).found == "the row 8-1: 3"

    @pytest.mark.parametrize("key", ["", "-", "-5", "a-b", "1-b", "1.5-2", "1-2-3", "≤4"])
    def test_a_malformed_range(self, key):
        assert refusal(table={key: 1}).found == f"the range {key!r}"

    @pytest.mark.parametrize("row", [[1, 2], [1, 2, 3, 4], "123", 5, {1, 2, 3}])
    def test_a_malformed_row(self, row):
        assert refusal(vllm=[row]).found == f"the row {row!r}"

    @pytest.mark.parametrize("key", ["0", "x", "-1", ""])
    def test_a_malformed_bound(self, key):
        assert refusal(trtllm={key: 1}).found == f"the bound {key!r}"

    def test_a_bound_twice(self):
        assert refusal(trtllm={"4": 1, "04": 2}).found == "the bound 4 twice"

    @pytest.mark.parametrize("depth", [-1, 1.0, True, "3", None])
    @pytest.mark.parametrize("form", ["table", "vllm", "trtllm"])
    def test_a_depth_that_is_no_whole_number(self, form, depth):
        rows = {"table": {"1-": depth}, "vllm": [[1, 9, depth]], "trtllm": {"4": depth}}
        assert refusal(**{form: rows[form]}).found.startswith(repr(depth))

    def test_a_range_from_zero(self):
        assert "begin below 1" in refusal(table={"0-4": 1, "5-": 0}).found

    @pytest.mark.parametrize(
        "form", [{"table": TABLE}, {"vllm": [[1, 4, 1]]}, {"trtllm": {"4": 1}}]
    )
    def test_a_depth_that_is_no_candidate(self, form):
        with pytest.raises(ConfigError, match="to use the candidate depths 0, 2") as caught:
            DepthTable(**form).configure(Limits(depths=(0, 2)))
        assert next(iter(form)) in caught.value.expected

    def test_rows_above_the_cap_are_fine(self):
        DepthTable(table=TABLE).configure(Limits(depths=(0, 1, 3), max_running_requests=8))


@st.composite
def tables(draw):
    """Draw ascending starts, the first 1, and a depth for each stretch."""
    starts = [1, *sorted(draw(st.sets(st.integers(2, 500), max_size=6)))]
    depths = draw(st.lists(st.integers(0, 16), min_size=len(starts), max_size=len(starts)))
    return list(zip(starts, depths, strict=True))


@given(tables(), st.lists(st.integers(1, 600), min_size=1, max_size=20), st.randoms())
def test_any_table_means_what_it_says(table, sizes, shuffle):
    ends = [start - 1 for start, _ in table[1:]]
    ranges = [f"{start}-{end}" for (start, _), end in zip(table, [*ends, ""], strict=True)]
    rows = list(zip(ranges, [depth for _, depth in table], strict=True))
    shuffle.shuffle(rows)
    expected = [max((s, d) for s, d in table if s <= size)[1] for size in sizes]
    assert depths_at(DepthTable(table=dict(rows)), sizes) == expected


@given(
    st.dictionaries(
        st.text(st.sampled_from("0123456789-"), max_size=5) | st.text(max_size=3),
        st.integers(-1, 16),
        max_size=4,
    )
)
def test_any_text_makes_a_table_or_a_refusal(table):
    try:
        policy = DepthTable(table=table)
    except ConfigError:
        return
    assert policy.rows[0].low == 1
    assert policy.rows[-1].high is None
    assert all(a.high + 1 == b.low for a, b in zip(policy.rows, policy.rows[1:], strict=False))

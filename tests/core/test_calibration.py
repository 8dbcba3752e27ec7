"""Calibration files that are not as `dynspec calibrate` writes them."""

import json
import math

import pytest

from sglang_dynspec import ConfigError
from sglang_dynspec.estimates.calibration import Calibration, CostCell
from sglang_dynspec.estimates.cost_model import CostModel

CELL = {"depth": 0, "batch_size": 1, "seconds": 0.01, "rounds": 64, "seq_len_sum": 100.0}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seconds", 5e-324),
        ("seconds", 1e-160),
        ("seconds", 1e308),
        ("seq_len_sum", 1e308),
        ("rounds", 10**400),
        ("batch_size", 10**30),
        ("batch_size", 0),
    ],
    ids=lambda value: str(value)[:12],
)
def test_a_cost_that_no_server_has(tmp_path, field, value):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"cells": [CELL | {field: value}]}))
    with pytest.raises(ConfigError, match=f"cells.0.{field}: "):
        Calibration.load(path)


@pytest.mark.parametrize(
    ("upkeep", "where"), [({"1": -5.0}, "1"), ({"1": 1e308}, "1"), ({"0": 1.0}, r"0.\[key\]")]
)
def test_an_upkeep_pass_that_no_server_has(tmp_path, upkeep, where):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"cells": [CELL], "upkeep": upkeep}))
    with pytest.raises(ConfigError, match=f"upkeep.{where}: "):
        Calibration.load(path)


@pytest.mark.parametrize("version", [0, -3])
def test_a_version_that_never_was(tmp_path, version):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"version": version, "cells": [CELL]}))
    with pytest.raises(ConfigError, match="version: Input should be greater"):
        Calibration.load(path)


def test_a_file_nested_too_deeply(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text("[" * 200_000)
    with pytest.raises(ConfigError, match=r"found .*recursion"):
        Calibration.load(path)


@pytest.mark.parametrize("seconds", [1e-6, 600.0])
@pytest.mark.parametrize("others", [1e-6, 0.01, 600.0])
def test_costs_at_the_bounds_predict_finite_ones(seconds, others):
    most = {"rounds": 1 << 40, "seq_len_sum": float(1 << 40)}
    cells = [
        CostCell(depth=0, batch_size=1, seconds=seconds, **most),
        CostCell(depth=3, batch_size=1 << 20, seconds=others, **most),
        CostCell(depth=1, batch_size=8, seconds=others, rounds=1),
    ]
    model = CostModel((0, 1, 3))
    model.load(Calibration(cells=tuple(cells), upkeep={1: 600.0}))
    for depth in (0, 1, 3):
        for size in (1, 64, 1 << 20):
            cost = model.predict(depth, size, 100 * size)
            assert 0.0 < cost.seconds < math.inf
            assert 0.0 < cost.error < math.inf

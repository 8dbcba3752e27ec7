"""
What is known of drafts and of rounds: estimates that a policy makes its decisions from.

`AcceptanceModel` says how likely drafts are right, `CostModel` what a round takes; the latter may
start from a `Calibration`, which is a file. A policy of your own may use them like `goodput` does.
"""

from sglang_dynspec.estimates.acceptance import AcceptanceModel
from sglang_dynspec.estimates.calibration import Calibration, CostCell
from sglang_dynspec.estimates.cost import Cost
from sglang_dynspec.estimates.cost_model import CostModel
from sglang_dynspec.estimates.expected import Expected

__all__ = ["AcceptanceModel", "Calibration", "Cost", "CostCell", "CostModel", "Expected"]

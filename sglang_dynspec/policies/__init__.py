"""
The built-in policies, one file each, registered through the same entry-point group as anyone's.
"""

from sglang_dynspec.policies.always import Always
from sglang_dynspec.policies.bandit import Bandit
from sglang_dynspec.policies.depth_table import DepthTable
from sglang_dynspec.policies.goodput import Goodput
from sglang_dynspec.policies.never import Never
from sglang_dynspec.policies.threshold import Threshold

__all__ = ["Always", "Bandit", "DepthTable", "Goodput", "Never", "Threshold"]

"""How fast it is: ratios measured in one run, against the machine and against what people would use instead."""

from speed.run import SECTIONS, bench

__all__ = ["SECTIONS", "bench"]

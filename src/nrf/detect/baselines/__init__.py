"""Detectors that inclusive random fields are compared with, where no library has a sound one."""

from nrf.detect.baselines.base import Baseline
from nrf.detect.baselines.dagmm import DAGMM
from nrf.detect.baselines.dsebm import DSEBM
from nrf.detect.baselines.images import DCAE, DeepSVDD

__all__ = ["DAGMM", "DCAE", "DSEBM", "Baseline", "DeepSVDD"]

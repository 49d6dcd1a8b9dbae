"""NRFDetector beside other detectors."""

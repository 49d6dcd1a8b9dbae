"""Every table and figure of the paper, and ours, made again."""

from nrf.errors import needs

with needs("reproduce", "nrf.reproduce"):
    import joblib  # noqa: F401
    import matplotlib  # noqa: F401

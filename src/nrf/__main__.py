"""`python -m nrf`."""

from __future__ import annotations

import sys

from nrf.cli import main

if __name__ == "__main__":
    sys.exit(main())

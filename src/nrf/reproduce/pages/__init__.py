"""The tables of README and docs, made from the records in results/."""

from nrf.reproduce.pages.fill import fill, pages_beside, write_pages
from nrf.reproduce.pages.records import Records

__all__ = ["Records", "fill", "pages_beside", "write_pages"]

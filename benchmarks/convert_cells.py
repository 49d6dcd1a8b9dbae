"""Bring the cells of 0.1.0, a file each in a folder for each experiment, into one file for each experiment.

    python benchmarks/convert_cells.py OLD NEW    # OLD/NAME-DIGEST/cells/*.json to NEW/NAME.jsonl

Cells of 0.1.0 had no settings of their own: the name of their folder has a digest of the settings of the whole
experiment. Where it is that of today's, a cell gets today's settings and goes on counting; where it is not, it is kept
without settings, and nothing is taken for it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

from nrf.config import to_json
from nrf.reproduce.registry import EXPERIMENTS
from nrf.reproduce.runner.cells import CellFile, Stored


def convert(folder: Path, new: Path) -> tuple[int, int]:
    """The cells of one folder; how many there are, and how many of them have settings now."""
    name, _, digest = folder.name.rpartition("-")
    experiment = EXPERIMENTS[name]
    whole = json.dumps(to_json(experiment.whole), sort_keys=True)
    same = digest == hashlib.blake2b(whole.encode(), digest_size=4).hexdigest()
    cells = {cell.name: cell for cell in experiment.cells(experiment.whole, Path())} if same else {}
    lines, known = [], 0
    for path in sorted(folder.glob("cells/*.json")):
        content, cell = json.loads(path.read_text()), cells.get(path.stem)
        settings = None if cell is None else cell.described()
        known += cell is not None
        stored = Stored(path.stem, 1, settings, content["commit"], content["result"], digest)
        lines.append(stored.as_line())
    if (folder / "wall.json").is_file():
        lines.append({"wall_seconds": json.loads((folder / "wall.json").read_text())})
    CellFile(new / f"{name}.jsonl").add(lines)
    return len(lines), known


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    options = parser.parse_args()
    for folder in sorted(path.parent for path in options.old.glob("*/cells")):
        total, known = convert(folder, options.new)
        print(f"{folder.name}: {total} lines, {known} cells with settings")
    return 0


if __name__ == "__main__":
    sys.exit(main())

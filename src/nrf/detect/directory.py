"""Scores of a directory of Parquet files, a file of scores for each, in one process or by Ray.

A file of scores appears only when it is complete, under the name of its input. So whatever process dies, and however
often a file is scored, there is one file of scores for each input; after a stop, the next call continues with the
missing files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nrf.detect.tables.readers import explained
from nrf.detect.tables.stream import score_stream
from nrf.detect.tables.texts import arrow
from nrf.errors import InputError, needs
from nrf.files import locked, read_json, require_folder, sweep, write_atomically
from nrf.processes import ray_cluster

if TYPE_CHECKING:
    from nrf.detect.detector import NRFDetector

Engine = Literal["local", "ray"]
REQUEST, MANIFEST = "request.json", "manifest.json"
OnFile = Callable[[int, float], object]


@dataclass(frozen=True)
class DirectorySummary:
    """Summary of a scored directory."""

    files: int
    scored: int
    """Files that this call scored; the others were done before."""
    rows: int
    anomalies: int


def score_directory(
    model: str | Path,
    source: str | Path,
    out: str | Path,
    *,
    engine: Engine = "local",
    drop: Sequence[str] = (),
    ids: Sequence[str] | None = None,
    device: str = "cpu",
    on_file: OnFile | None = None,
) -> DirectorySummary:
    """Score all ``*.parquet`` files of a directory; memory grows neither with their length nor with their number.

    ``out`` gets a file of the same name for each, as :func:`nrf.detect.tables.stream.score_stream` writes it (rows are
    numbered from 1 in each file), and at the end ``manifest.json`` with rows and anomalies by file.

    Args:
        model: Folder of a saved detector. With Ray, every machine must see this folder and the two others.
        source: The directory; its own files alone, not those of folders in it.
        out: Folder for the scores: a new one, or that of a stopped call with the same detector, files and columns, to
            continue it.
        engine: ``local``, one file after the other in this process, or ``ray``, several at a time with Ray Data: on the
            cluster that ``RAY_ADDRESS`` names, else on the cores of this machine.
        drop: Columns to ignore.
        ids: Columns to copy; if not given, the identifier columns of the training file.
        device: Where to compute.
        on_file: Called after each file with the number of files and the share of them done.

    Raises:
        InputError: For example, the folder holds scores of another request.
    """
    if engine not in _ENGINES:
        raise InputError(f"engine must be 'local' or 'ray', got {engine!r}")
    model, source, out = (Path(path).resolve() for path in (model, source, out))
    files = _inputs(source)
    require_folder(out)
    if out == source:
        raise InputError(f"{out}: is the input; write the scores to another folder")
    request = _request(model, source, files, drop, ids)
    digest = request["detector"]
    work = [_Work(str(model), str(source / n), str(out / n), tuple(drop), _tuple(ids), device, digest) for n in files]
    with locked(out):
        _agree(out, request)
        missing = [one for one in work if not Path(one.out).exists()]
        done = len(work) - len(missing)
        for _ in _ENGINES[engine](missing):
            done += 1
            if on_file is not None:
                on_file(done, done / len(work))
        sweep(out, alone=True)
        counts = {name: _counted(source / name, out / name) for name in files}
        write_atomically(out / MANIFEST, json.dumps({"files": counts}, indent=1).encode())
    rows, anomalies = (sum(count[key] for count in counts.values()) for key in ("rows", "anomalies"))
    return DirectorySummary(len(files), len(missing), rows, anomalies)


@dataclass(frozen=True)
class _Work:
    """One file to score, as text and tuples, which can be sent to any process."""

    model: str
    source: str
    out: str
    drop: tuple[str, ...]
    ids: tuple[str, ...] | None
    device: str
    digest: str
    """Digest of the detector: a process that holds another one from the same folder loads it again."""

    def run(self) -> None:
        detector = _loaded(self.model, self.device, self.digest)
        score_stream(detector, self.source, self.out, drop=self.drop, ids=self.ids)


@lru_cache(maxsize=1)
def _loaded(model: str, device: str, digest: str) -> NRFDetector:
    from nrf.detect.detector import NRFDetector

    return NRFDetector.load(model, device=device)


def _locally(work: Sequence[_Work]) -> Iterator[None]:
    for one in work:
        one.run()
        yield None


def _by_ray(work: Sequence[_Work]) -> Iterator[None]:
    """A task for each file. Ray repeats tasks whose process has died."""
    with needs("ray", "the engine ray"):
        import ray.data
    if not work:
        return
    with ray_cluster():
        items = [vars(one) for one in work]
        for done in ray.data.from_items(items, override_num_blocks=len(items)).map(_run_in_worker).iter_rows():
            if done["error"]:
                raise InputError(done["error"])
            yield None


def _run_in_worker(item: dict[str, Any]) -> dict[str, str]:
    """A user's errors come back as text, since Ray would wrap the exception."""
    import torch

    torch.set_num_threads(1)
    item = {**item, "drop": tuple(item["drop"]), "ids": _tuple(item["ids"])}
    try:
        _Work(**item).run()
    except InputError as error:
        return {"error": str(error)}
    return {"error": ""}


_ENGINES: dict[str, Callable[[Sequence[_Work]], Iterator[None]]] = {"local": _locally, "ray": _by_ray}


def _inputs(source: Path) -> list[str]:
    if not source.is_dir():
        raise InputError(f"{source}: is no directory; give one with .parquet files")
    files = sorted(path.name for path in source.glob("*.parquet") if path.is_file() and path.name[0] != ".")
    if not files:
        raise InputError(f"{source}: holds no .parquet file")
    return files


def _request(
    model: Path, source: Path, files: Sequence[str], drop: Sequence[str], ids: Sequence[str] | None
) -> dict[str, Any]:
    """What determines the scores: the detector, the columns, the files with sizes and times."""
    stats = {name: (source / name).stat() for name in files}
    description = model / "detector.json"
    if not description.is_file():
        raise InputError(f"{model}: holds no detector; `nrf detect fit` makes one")
    return {
        "detector": hashlib.sha256(description.read_bytes()).hexdigest(),
        "drop": list(drop),
        "ids": None if ids is None else list(ids),
        "files": {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()},
    }


def _agree(out: Path, request: dict[str, Any]) -> None:
    """Require that scores in the folder, if any, are of this request."""
    path = out / REQUEST
    if any(out.glob("*.parquet")):
        if not path.exists():
            raise InputError(f"{out}: holds .parquet files that are no scores of this directory; choose another folder")
        if read_json(path, "choose another folder") != request:
            raise InputError(f"{out}: holds scores of another detector, other files or columns; choose another folder")
        return
    write_atomically(path, json.dumps(request, indent=1).encode())


def _counted(source: Path, out: Path) -> dict[str, int]:
    """Rows and anomalies of a file of scores that was written before."""
    parquet = arrow("parquet")
    with explained(out), parquet.ParquetFile(source) as given, parquet.ParquetFile(out) as found:
        rows, wanted = int(found.metadata.num_rows), int(given.metadata.num_rows)
        parts = found.iter_batches(columns=["anomaly"])
        anomalies = sum(int(part.column(0).to_numpy(zero_copy_only=False).sum()) for part in parts)
    if rows != wanted:
        raise InputError(f"{out}: has {rows} rows, its input {wanted}; delete it and run again")
    return {"rows": rows, "anomalies": anomalies}


def _tuple(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)

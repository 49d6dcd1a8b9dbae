"""Checkpoints: one safetensors file each, with JSON in the header, written atomically, checked when read.

No pickle. A file holds everything a run needs to continue bit by bit, and everything that scoring or sampling needs.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer

from nrf._version import __version__
from nrf.errors import CheckpointError
from nrf.files import write_atomically as write_atomically  # part of this module's interface, too

FORMAT = "nrf-checkpoint"
VERSION = 1
MOST_HEADER = 16 * 2**20
"""Largest header in bytes; ours have some thousands."""


class DamagedError(CheckpointError):
    """A checkpoint whose content is not what was written; the one before it may be intact."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint.

    Args:
        tensors: Tensors by slash-separated name.
        meta: JSON that is stored with them.
    """

    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any]

    def group(self, prefix: str) -> dict[str, Tensor]:
        """The tensors below a name, without that prefix."""
        return {k.removeprefix(prefix + "/"): v for k, v in self.tensors.items() if k.startswith(prefix + "/")}


def versions() -> dict[str, str]:
    """Versions of the software that results depend on, bit by bit."""
    return {
        "nrf": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def write(path: Path | str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically: at any moment, ``path`` is either absent, the old file, or the complete new one.

    Args:
        path: The file.
        checkpoint: Tensors and JSON.
    """
    tensors = {k: v.detach().cpu().contiguous() for k, v in checkpoint.tensors.items()}
    meta = json.loads(json.dumps({**checkpoint.meta, "version": VERSION, "versions": versions()}))
    meta["digest"] = _digest(tensors, meta)
    content = save(tensors, metadata={"format": FORMAT, "nrf": json.dumps(meta)})
    write_atomically(Path(path), content)


def read(path: Path | str) -> Checkpoint:
    """Read and check a checkpoint; each kind of damage has an error message of its own.

    Args:
        path: The file.

    Raises:
        DamagedError: The file is missing or damaged.
        CheckpointError: Another version of nrf wrote the file.
    """
    path = Path(path)
    if not path.is_file():
        raise DamagedError(f"{path}: no such checkpoint")
    header, tensors = _read_safetensors(path)
    if header.get("format") != FORMAT or "nrf" not in header:
        raise DamagedError(f"{path}: a safetensors file, but not a checkpoint of nrf")
    try:
        meta = json.loads(header["nrf"])
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: its JSON header is damaged ({error})") from error
    if not isinstance(meta, dict):
        raise DamagedError(f"{path}: its JSON header is damaged (not an object)")
    if meta.get("version") != VERSION:
        raise CheckpointError(
            f"{path}: checkpoint version {meta.get('version')}, this nrf {__version__} reads version {VERSION}"
        )
    if meta.get("digest") != _digest(tensors, {k: v for k, v in meta.items() if k != "digest"}):
        raise DamagedError(
            f"{path}: damaged, the content does not match its checksum; delete it, or put a whole copy in its place"
        )
    return Checkpoint(tensors, meta)


def _read_safetensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    remedy = "delete it, or put a whole copy in its place"
    try:
        with path.open("rb") as start:
            (size,) = struct.unpack("<Q", start.read(8))
        if size > min(MOST_HEADER, path.stat().st_size):
            raise ValueError(f"a header of {size} bytes")
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError, RuntimeError, struct.error) as error:
        raise DamagedError(f"{path}: truncated or not a safetensors file ({error}); {remedy}") from error


def require_run(checkpoint: Checkpoint, path: Path) -> Checkpoint:
    """The checkpoint, if it is that of a run, with valid counters and finite weights."""
    meta = checkpoint.meta
    counts = {name: meta.get(name) for name in ("step", "count", "rollbacks")}
    wrong = [f"{k} is {v!r}" for k, v in counts.items() if isinstance(v, bool) or not isinstance(v, int) or v < 0]
    sums = meta.get("sums")
    numbers = {"seconds": meta.get("seconds"), **(sums if isinstance(sums, dict) else {"sums": sums})}
    wrong += [f"{k} is {v!r}" for k, v in numbers.items() if isinstance(v, bool) or not isinstance(v, int | float)]
    if not wrong and not (math.isfinite(numbers["seconds"]) and numbers["seconds"] >= 0):
        wrong.append(f"seconds is {numbers['seconds']!r}")
    kinds: dict[str, type | tuple[type, ...]] = {"averaged": list, "optimizers": dict, "order": dict}
    kinds |= {"config": dict, "event_shape": list, "least_gap": (int, float, type(None))}
    wrong += [f"{name} is {meta.get(name)!r}" for name, kind in kinds.items() if not isinstance(meta.get(name), kind)]
    if wrong:
        raise DamagedError(f"{path}: not the checkpoint of a run: {wrong[0]}")
    for name, value in checkpoint.tensors.items():
        learned = name.startswith(("module/", "averaged/"))
        if learned and value.is_floating_point() and not torch.isfinite(value).all():
            raise DamagedError(f"{path}: {name} holds values that are not finite")
    return checkpoint


def pack(
    modules: Mapping[str, nn.Module], optimizers: Mapping[str, Optimizer], averages: Mapping[str, nn.Module]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Flatten modules, optimiser states and averaged modules to tensors and JSON."""
    tensors: dict[str, Tensor] = {}
    for kind, group in (("module", modules), ("averaged", averages)):
        for name, module in group.items():
            tensors |= {f"{kind}/{name}/{k}": v for k, v in module.state_dict().items()}
    groups: dict[str, Any] = {}
    for name, optimizer in optimizers.items():
        state = optimizer.state_dict()
        groups[name] = state["param_groups"]
        for index, slots in state["state"].items():
            for slot, value in slots.items():
                tensors[f"optimizer/{name}/{index}/{slot}"] = torch.as_tensor(value)
    return tensors, groups


def load_module(module: nn.Module, checkpoint: Checkpoint, prefix: str, path: Path) -> None:
    """Put stored tensors into a module; a mismatch names the file and the tensors."""
    load_state(module, checkpoint.group(prefix), path, prefix)


def load_state(module: nn.Module, state: Mapping[str, Tensor], path: Path, what: str = "weights") -> None:
    """Put a state dictionary into a module; a mismatch names the file and the tensors."""
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{path}: does not fit the model ({what}): {reason}") from error


def load_optimizer(optimizer: Optimizer, checkpoint: Checkpoint, name: str, path: Path) -> None:
    """Put stored moments and settings into an optimiser."""
    state: dict[int, dict[str, Tensor]] = {}
    groups = checkpoint.meta.get("optimizers", {}).get(name)
    if groups is None:
        raise CheckpointError(f"{path}: holds no optimiser {name!r}")
    try:
        for key, value in checkpoint.group(f"optimizer/{name}").items():
            index, slot = key.split("/")
            state.setdefault(int(index), {})[slot] = value
        # JSON has lists only; the optimisers' own defaults are tuples.
        restored = [{k: tuple(v) if k == "betas" else v for k, v in group.items()} for group in groups]
        optimizer.load_state_dict({"state": state, "param_groups": restored})
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise CheckpointError(f"{path}: optimiser {name!r} does not fit: {error}") from error


def _digest(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> str:
    digest = hashlib.blake2b(json.dumps(meta, sort_keys=True).encode(), digest_size=16)
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

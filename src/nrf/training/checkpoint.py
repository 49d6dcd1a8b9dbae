"""Checkpoints: one safetensors file each, its JSON in the header, written atomically, checked when read.

No pickle. A file holds everything a run needs to go on bit by bit, and everything that scoring or sampling needs.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import struct
import tempfile
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

FORMAT = "nrf-checkpoint"
VERSION = 1


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by slash-separated name, and the JSON beside them."""

    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any]

    def group(self, prefix: str) -> dict[str, Tensor]:
        """The tensors below a name, with that name taken off."""
        return {k.removeprefix(prefix + "/"): v for k, v in self.tensors.items() if k.startswith(prefix + "/")}


def versions() -> dict[str, str]:
    """What the bits depend on."""
    return {
        "nrf": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Write atomically: at any moment, ``path`` is either absent, the old file, or the whole new one."""
    tensors = {k: v.detach().cpu().contiguous() for k, v in checkpoint.tensors.items()}
    meta = json.loads(json.dumps({**checkpoint.meta, "version": VERSION, "versions": versions()}))
    meta["digest"] = _digest(tensors, meta)
    content = save(tensors, metadata={"format": FORMAT, "nrf": json.dumps(meta)})
    write_atomically(path, content)


def write_atomically(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write beside the target, flush to disk, rename over it.

    Args:
        path: The target.
        content: What it will hold.
        private: Nobody but its owner may read it (mode 0600), at no moment.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".partial-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if not private:
            os.chmod(temporary, 0o666 & ~_umask())  # a temporary file is its owner's alone
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read(path: Path) -> Checkpoint:
    """Read and check; every way a file can be wrong has its own words."""
    if not path.is_file():
        raise CheckpointError(f"{path}: no such checkpoint")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, struct.error) as error:
        raise CheckpointError(
            f"{path}: truncated or not a safetensors file ({error}); delete it to go on from the one before"
        ) from error
    if header.get("format") != FORMAT or "nrf" not in header:
        raise CheckpointError(f"{path}: a safetensors file, but not a checkpoint of nrf")
    try:
        meta = json.loads(header["nrf"])
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}: its JSON header is damaged ({error})") from error
    if meta.get("version") != VERSION:
        raise CheckpointError(
            f"{path}: checkpoint version {meta.get('version')}, this nrf {__version__} reads version {VERSION}"
        )
    if meta.get("digest") != _digest(tensors, {k: v for k, v in meta.items() if k != "digest"}):
        raise CheckpointError(
            f"{path}: damaged, the content does not match its checksum; delete it to go on from the one before"
        )
    return Checkpoint(tensors, meta)


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
    """The same for a state that has been taken out."""
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{path}: does not fit the model ({what}): {reason}") from error


def load_optimizer(optimizer: Optimizer, checkpoint: Checkpoint, name: str, path: Path) -> None:
    """Put stored moments and settings into an optimiser."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in checkpoint.group(f"optimizer/{name}").items():
        index, slot = key.split("/")
        state.setdefault(int(index), {})[slot] = value
    groups = checkpoint.meta.get("optimizers", {}).get(name)
    if groups is None:
        raise CheckpointError(f"{path}: holds no optimiser {name!r}")
    # JSON has lists only; the optimisers' own defaults are tuples.
    restored = [{k: tuple(v) if k == "betas" else v for k, v in group.items()} for group in groups]
    try:
        optimizer.load_state_dict({"state": state, "param_groups": restored})
    except ValueError as error:
        raise CheckpointError(f"{path}: optimiser {name!r} does not fit: {error}") from error


def _digest(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> str:
    digest = hashlib.blake2b(json.dumps(meta, sort_keys=True).encode(), digest_size=16)
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

"""What tells that training is no longer sound."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from nrf.errors import NonFiniteError


def require_finite_state(modules: Mapping[str, nn.Module]) -> None:
    """Refuse to call a state good that holds a NaN or an infinity; names the module and the tensor."""
    for name, module in modules.items():
        for key, value in module.state_dict().items():
            if isinstance(value, Tensor) and value.is_floating_point() and not torch.isfinite(value).all():
                raise NonFiniteError(f"parameter {key} of the {name} is not finite")

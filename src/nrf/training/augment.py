"""Image augmentation: random shifts and mirroring."""

from __future__ import annotations

import torch
from torch import Tensor

from nrf.errors import InputError
from nrf.seeds import Rng, rand


def augmented(images: Tensor, shift: int, flip: bool, rng: Rng) -> Tensor:
    """Shift each image at random, and mirror about half of them.

    Pixels that enter the image repeat its edge. Without a shift and a flip no random numbers are drawn.

    Args:
        images: ``(n, channels, height, width)``.
        shift: Largest shift in each direction, in pixels.
        flip: Mirror each image, left to right, with probability one half.
        rng: Source of all randomness.

    Example:
        >>> x = torch.arange(9.0).reshape(1, 1, 3, 3)
        >>> bool((augmented(x, 0, False, torch.Generator()) == x).all())
        True
    """
    if images.ndim != 4:
        if shift or flip:
            raise InputError("only images can be shifted and flipped; leave train.shift and train.flip out")
        return images
    n, _, height, width = images.shape
    if shift:
        moves = (rand((n, 2), rng) * (2 * shift + 1)).long()
        rows, columns = (torch.arange(size, device=images.device) for size in (height, width))
        rows = (rows + moves[:, :1] - shift).clamp(0, height - 1)
        columns = (columns + moves[:, 1:] - shift).clamp(0, width - 1)
        which = torch.arange(n, device=images.device)[:, None, None]
        images = images.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    if flip:
        mirrored = rand((n,), rng) < 0.5
        images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
    return images.contiguous()

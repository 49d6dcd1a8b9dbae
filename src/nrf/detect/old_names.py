"""Names that changed before version 1.0: the old ones still work, with a ``DeprecationWarning``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ParamSpec, Self

from nrf.deprecation import deprecated
from nrf.detect.settings import Training
from nrf.errors import InputError

RENAMED = {"iterations": "max_iter", "n_members": "n_estimators", "calibration_share": "calibration_fraction"}
"""Parameters of the detectors, and what they are called now."""
SETTINGS = tuple(field.name for field in fields(Training))
"""Parameters that have moved into ``training``."""
PREFIX = "training__"
P = ParamSpec("P")


def renamed_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters under their new names; those that have moved as ``training__name``.

    Example:
        >>> renamed_parameters({"iterations": 5, "sigma": 1.0, "combine": "rank"})
        {'max_iter': 5, 'training__sigma': 1.0, 'combine': 'rank'}
    """
    new = RENAMED | {name: PREFIX + name for name in SETTINGS}
    return {new.get(name, name): value for name, value in parameters.items()}


class OldNames:
    """Parameters of an estimator by their old names, and the settings in ``training`` one by one.

    ``set_params(training__sigma=3)``, and so the grid of a search, changes one setting of ``training`` and leaves the
    others as they are.
    """

    training: Training | None

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as for every estimator; ``training__sigma`` is the setting ``sigma`` of ``training``."""
        _warn(params, stacklevel=3)
        params = renamed_parameters(params)
        changes = {name: params.pop(name) for name in list(params) if name.startswith(PREFIX)}
        super().set_params(**params)  # type: ignore[misc]
        if changes:
            self.training = _changed(self.training, {k.removeprefix(PREFIX): v for k, v in changes.items()})
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; with ``deep`` also the settings of ``training``, one by one."""
        found: dict[str, Any] = super().get_params(deep)  # type: ignore[misc]
        training = Training() if self.training is None else self.training
        if deep and isinstance(training, Training):
            found |= {PREFIX + name: getattr(training, name) for name in SETTINGS}
        return found

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in RENAMED:
                deprecated(name, RENAMED[name])
                return getattr(self, RENAMED[name])
            if name in SETTINGS:
                deprecated(name, f"training.{name}")
                return getattr(self.training or Training(), name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def takes_old_names(init: Callable[P, None]) -> Callable[P, None]:
    """A constructor of :class:`OldNames` that takes old names, too; its signature does not show them."""

    @functools.wraps(init)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        given: dict[str, Any] = dict(kwargs)
        old = {name: given.pop(name) for name in kwargs if name in RENAMED or name in SETTINGS}
        _warn(old, stacklevel=3)
        init(*args, **given)
        if old:
            estimator: Any = args[0]
            estimator.set_params(**renamed_parameters(old))

    return wrapped


def _changed(training: Training | None, changes: dict[str, Any]) -> Training:
    if not isinstance(training, Training | None):
        raise InputError(f"training must be a nrf.detect.Training or None, got {training!r}")
    odd = sorted(set(changes) - set(SETTINGS))
    if odd:
        raise ValueError(f"Invalid parameter {odd[0]!r} for Training. Valid parameters are: {list(SETTINGS)}.")
    return replace(training or Training(), **changes)


def _warn(parameters: Mapping[str, Any], stacklevel: int) -> None:
    for name in parameters:
        if name in RENAMED:
            deprecated(name, RENAMED[name], stacklevel=stacklevel + 1)
        elif name in SETTINGS:
            deprecated(name, f"training=Training({name}=…)", stacklevel=stacklevel + 1)

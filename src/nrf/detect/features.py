"""Feature steps before a detector of tables: for images, without labels, and for columns with one harmless tail.

All are scikit-learn transformers, for use before :class:`nrf.detect.NRFDetector` in a pipeline.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from nrf.config import from_json, to_json
from nrf.deprecation import deprecated
from nrf.detect.pixels import PixelScale
from nrf.detect.windows import Windows
from nrf.errors import InputError
from nrf.networks.classifier import Classifier
from nrf.seeds import DrawsFrom, stream
from nrf.training.classify import ClassifierTraining, fit_classifier

Rows = NDArray[np.float32]

IMAGE_COMPONENTS = 40
"""Number of principal components that a detector of images uses by default."""
TURNS = 4
SOFTENED = 2.0
"""What logits are divided by before the softmax."""
CHUNK = 500
"""Images per batch in a transformation."""


class PrincipalComponents(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The first principal components of rows or images, and the length of the residual.

    The last column matters: an anomaly may differ from the training rows in directions in which those do not vary.

    Args:
        n_components: Number of components.
        random_state: Seed of the decomposition.

    Attributes:
        mean_: Mean of the training rows, flattened.
        components_: The components, one per row.
        shape_: Shape of a row at fit.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(50, 2)) @ np.ones((2, 6))
        >>> PrincipalComponents(1).fit(rows).transform(rows).shape
        (50, 2)
    """

    def __init__(self, n_components: int = 40, *, random_state: int = 0) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> PrincipalComponents:
        """Fit on rows ``(n, …)``, which are flattened."""
        from sklearn.decomposition import PCA

        rows = _flat(X)
        if not 1 <= self.n_components <= min(rows.shape):
            raise InputError(
                f"n_components must be from 1 to {min(rows.shape)}, the smaller of rows and columns, got "
                f"{self.n_components}"
            )
        found = PCA(self.n_components, random_state=self.random_state).fit(rows)
        self.mean_, self.components_ = found.mean_.astype(np.float64), found.components_.astype(np.float64)
        self.shape_ = tuple(np.shape(X)[1:])
        return self

    def transform(self, X: Any) -> Rows:
        """The components, then the length of the residual."""
        check_is_fitted(self, "components_")
        if tuple(np.shape(X)[1:]) != self.shape_:
            raise InputError(f"rows have the shape {np.shape(X)[1:]}, at fit it was {self.shape_}")
        centred = _flat(X) - self.mean_
        found = centred @ self.components_.T
        rest = np.linalg.norm(centred - found @ self.components_, axis=1, keepdims=True)
        return np.hstack([found, rest]).astype(np.float32)

    @property
    def n_columns(self) -> int:
        """How many columns it makes."""
        return self.n_components + 1

    def inverse_transform(self, X: Any, like: Any = None) -> Rows:
        """The rows that have these components, with no residual or one like that of given rows.

        Args:
            X: Components, and in the last column the length of the residual.
            like: Rows to take the residual from, which is scaled to that length; without them there is no residual.
        """
        check_is_fitted(self, "components_")
        columns = np.asarray(X, dtype=np.float64)
        rows = columns[:, : self.n_components] @ self.components_ + self.mean_
        if like is not None:
            centred = _flat(like) - self.mean_
            rest = centred - centred @ self.components_.T @ self.components_
            length = np.linalg.norm(rest, axis=1, keepdims=True)
            rows += rest * (columns[:, -1:] / np.maximum(length, 1e-12))
        found: Rows = rows.astype(np.float32).reshape(len(rows), *self.shape_)
        return found


def components_for(rows: Any) -> PrincipalComponents | None:
    """The default feature step of a detector: none for tables, components for images.

    At most one component for five images: with more, training images would have no residual to compare others with.
    """
    if getattr(rows, "ndim", 2) != 4:
        return None
    return PrincipalComponents(max(1, min(IMAGE_COMPONENTS, len(rows) // 5, int(np.prod(rows.shape[1:])))))


class ClipBenignTail(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Clip the benign tail of each column to its start, for columns in which only one tail can be wrong.

    To a density, a loss that is lower than usual, or a probability that is more certain, is as unusual as one that is
    too high. After this step it is not: all rows beyond a quantile are equal.

    Args:
        wrong: The side on which anomalies lie, ``low`` or ``high`` values.
        share: Share of the training rows, on the other side, that are clipped.

    Attributes:
        ends_: Where the benign tail of each column begins.

    Example:
        >>> losses = ClipBenignTail("high").fit([[1.0], [2.0], [3.0], [4.0], [5.0]])
        >>> losses.transform([[-9.0], [3.0], [99.0]]).ravel().tolist()
        [2.0, 3.0, 99.0]
    """

    def __init__(self, wrong: Literal["low", "high"] = "low", *, share: float = 0.25) -> None:
        self.wrong = wrong
        self.share = share

    def fit(self, X: Any, y: Any = None) -> ClipBenignTail:
        """Find where the benign tail of each column begins, in rows ``(n, columns)``."""
        if self.wrong not in ("low", "high"):
            raise InputError(f"wrong must be 'low' or 'high', got {self.wrong!r}")
        if not 0 < self.share < 1:
            raise InputError(f"share must lie between 0 and 1, got {self.share!r}")
        rows = _flat(X)
        self.ends_ = np.quantile(rows, 1 - self.share if self.wrong == "low" else self.share, axis=0).astype(np.float32)
        return self

    def transform(self, X: Any) -> Rows:
        """Rows with their benign tail clipped."""
        check_is_fitted(self, "ends_")
        rows = _flat(X)
        if rows.shape[1] != len(self.ends_):
            raise InputError(f"rows have {rows.shape[1]} columns, at fit there were {len(self.ends_)}")
        cut = np.minimum if self.wrong == "low" else np.maximum
        return np.asarray(cut(rows, self.ends_), dtype=np.float32)

    @property
    def n_columns(self) -> int:
        """How many columns it makes."""
        return len(self.ends_)


class RotationFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Features of a network that has learned to classify the rotation of images by 0°, 90°, 180° or 270°.

    For that, it has to know what upright images of the training set look like. No label is needed, but images must have
    an upright position: it does not suit aerial images, or round objects.

    Args:
        width: Channels of the network's first convolution; there are eight times as many features.
        output: ``features`` of the upright image, or ``answers``: the image is rotated into each of the four positions,
            and for each there is a column ``−√(−log p)``, with p the network's probability of the right rotation: 0 if
            it is certain. It is less certain for images unlike the training set. Logits are halved first, or most
            images would have the same value; without the root, tails would be longer. Use it with
            :class:`ClipBenignTail`, since more certainty than usual is no anomaly, and then a detector with
            ``scaling="deviation"`` and ``training=Training(sigma=3, first_step_size=0.05)``.
        epochs: Passes over the images, each of them in all four positions.
        batch_size: Images per step, before they are rotated.
        peak_rate: Highest learning rate.
        shift: Shift images by up to this many pixels while training.
        random_state: Seed of the weights and the order of images.
        verbose: Progress: None shows it on a terminal, 1 everywhere, 0 nowhere.

    Attributes:
        network_: The trained network.
        pixels_: The shape and range of the training images.

    Reference:
        Gidaris et al., "Unsupervised representation learning by predicting image rotations", 2018.
    """

    def __init__(
        self,
        width: int = 16,
        *,
        output: Literal["features", "answers"] = "features",
        epochs: int = 20,
        batch_size: int = 64,
        peak_rate: float = 0.2,
        shift: int = 3,
        random_state: int = 0,
        verbose: int | None = None,
    ) -> None:
        self.width = width
        self.output = output
        self.epochs = epochs
        self.batch_size = batch_size
        self.peak_rate = peak_rate
        self.shift = shift
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> RotationFeatures:
        """Train on images ``(n, channels, side, side)``."""
        if self.output not in ("features", "answers"):
            raise InputError(f"output must be 'features' or 'answers', got {self.output!r}")
        self.pixels_ = PixelScale.fit(X)
        channels, height, width = self.pixels_.shape
        if height != width or height < 8:
            raise InputError(f"images must be square with a side of 8 or more to be rotated, got {height} × {width}")
        images = torch.from_numpy(self.pixels_.encode(X))
        with DrawsFrom(stream(self.random_state, "turns")):
            self.network_ = Classifier(self.width, TURNS, channels)
        training = ClassifierTraining(
            self.epochs, min(self.batch_size, len(images)), self.peak_rate, shift=self.shift, smoothing=0.0
        )
        fit_classifier(
            self.network_,
            images,
            lambda x, rows: _turned(x),
            training,
            self.random_state,
            label="features",
            quiet=self.verbose is not None and not self.verbose,
            piped=bool(self.verbose),
        )
        return self

    def transform(self, X: Any) -> Rows:
        """Features of upright images, or how certain the network is in each position."""
        check_is_fitted(self, "network_")
        images = torch.from_numpy(self.pixels_.encode(X))
        look = self._answers if self.output == "answers" else self._features
        with torch.no_grad():
            return torch.cat([look(part) for part in torch.split(images, CHUNK)]).numpy()

    @property
    def n_columns(self) -> int:
        """How many columns it makes."""
        return TURNS if self.output == "answers" else 8 * self.width

    def _features(self, images: Tensor) -> Tensor:
        features: Tensor = self.network_(images)[0]
        return features

    def _answers(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network_(_turned(images)[0])[1]
        answers = (logits / SOFTENED).log_softmax(1).reshape(TURNS, len(images), TURNS)
        return -torch.diagonal(answers, dim1=0, dim2=2).neg().clamp_min(0).sqrt()

    def accuracy(self, X: Any) -> float:
        """Share of images, in all four rotations, whose rotation is classified correctly: how much there was to
        learn."""
        check_is_fitted(self, "network_")
        right = []
        for part in torch.split(torch.from_numpy(self.pixels_.encode(X)), CHUNK):
            turned, labels = _turned(part)
            right.append((self.network_(turned)[1].argmax(1) == labels).float())
        return float(torch.cat(right).mean())

    def told(self, X: Any) -> float:
        """The former name of :meth:`accuracy`."""
        deprecated("RotationFeatures.told", "RotationFeatures.accuracy")
        return self.accuracy(X)


def stored(step: Any) -> tuple[Any, dict[str, NDArray[Any]]]:
    """A fitted feature step as plain values and arrays; ``given`` for a step of the user's own, which is not stored."""
    if step is None:
        return None, {}
    if type(step) not in STORED:
        return "given", {}
    described = {"type": type(step).__name__, "parameters": step.get_params(deep=False)}
    if isinstance(step, Windows):
        return described | {"fitted": step.stored()}, {}
    if isinstance(step, RotationFeatures):
        weights = {name: value.contiguous().numpy() for name, value in step.network_.state_dict().items()}
        return described | {"pixels": to_json(step.pixels_)}, weights
    if isinstance(step, PrincipalComponents):
        return described | {"shape": list(step.shape_)}, {"mean": step.mean_, "components": step.components_}
    return described, {"ends": step.ends_}


def from_stored(described: Any, arrays: dict[str, NDArray[Any]], given: Any = None) -> Any:
    """The step that :func:`stored` described.

    Args:
        described: Its plain values.
        arrays: Its arrays.
        given: The fitted step of the user's own, where it was not stored.
    """
    if described is None or described == "given":
        return given
    kinds = {kind.__name__: kind for kind in STORED} | OLD_NAMES
    step = kinds[described["type"]](**described["parameters"])
    if isinstance(step, Windows):
        _require_arrays(arrays, {})
        step.restore(described["fitted"])
    elif isinstance(step, RotationFeatures):
        step.pixels_ = from_json(PixelScale, described["pixels"])
        if step.output not in ("features", "answers") or any(
            a.dtype.kind == "f" and a.itemsize != 4 for a in arrays.values()
        ):
            raise InputError("RotationFeatures give features or answers, by numbers of 32 bits")
        with torch.device("meta"):  # no weights to draw: the stored ones replace them
            step.network_ = Classifier(step.width, TURNS, step.pixels_.shape[0])
        step.network_.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()}, assign=True)
        step.network_.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        step.network_.eval().requires_grad_(False)
    elif isinstance(step, PrincipalComponents):
        step.shape_ = tuple(described["shape"])
        size = math.prod(step.shape_)
        _require_arrays(arrays, {"mean": (size,), "components": (step.n_components, size)})
        step.mean_, step.components_ = arrays["mean"], arrays["components"]
    else:
        if step.wrong not in ("low", "high"):
            raise InputError(f"wrong must be 'low' or 'high', got {step.wrong!r}")
        _require_arrays(arrays, {"ends": arrays["ends"].shape[:1]})
        step.ends_ = arrays["ends"]
    return step


def _require_arrays(arrays: dict[str, NDArray[Any]], shapes: dict[str, tuple[int, ...]]) -> None:
    found = {name: array.shape for name, array in arrays.items()}
    if found != shapes or any(array.dtype.kind != "f" for array in arrays.values()):
        raise InputError(f"the feature step has arrays of the shapes {found}, they must be {shapes} and hold floats")


STORED = (PrincipalComponents, ClipBenignTail, RotationFeatures, Windows)
"""Steps that are saved with a detector."""
OLD_NAMES = {"TurnFeatures": RotationFeatures, "OneSided": ClipBenignTail}
"""Names of two of them in version 0.1.0."""


def __getattr__(name: str) -> Any:
    if name not in OLD_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    deprecated(name, OLD_NAMES[name].__name__)
    return OLD_NAMES[name]


def _turned(images: Tensor) -> tuple[Tensor, Tensor]:
    """Images in all four positions, one after the other, and by how many quarter turns they are rotated."""
    turned = torch.cat([images.rot90(k, (2, 3)) for k in range(TURNS)])
    return turned, torch.arange(TURNS).repeat_interleave(len(images))


def _flat(X: Any) -> NDArray[np.floating]:
    rows = np.asarray(X)
    if rows.ndim < 2 or rows.dtype.kind not in "fiub":
        raise InputError(f"principal components need arrays of numbers (n, …), got {rows.dtype}, {rows.ndim} axes")
    return rows.reshape(len(rows), -1).astype(np.float32)

"""Images as a few numbers, learned without labels, and columns of which one side is harmless: what a detector of tables
can work on.

All are transformers of scikit-learn, to stand before :class:`nrf.detect.NRFDetector` in a pipeline.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from nrf.detect.pixels import PixelScale
from nrf.errors import InputError
from nrf.networks.classifier import Classifier
from nrf.seeds import derive
from nrf.training.classify import ClassifierTraining, fit_classifier

Rows = NDArray[np.float32]

TURNS = 4
SOFTENED = 2.0
"""What logits are divided by, before they are answers."""
CHUNK = 500
"""Images of a batch that is transformed."""


class PrincipalComponents(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The first principal components of rows or images, and the length of what they leave out.

    The last column matters: what differs from all training rows may do so where they do not vary.

    Args:
        n_components: How many.
        random_state: Seed of the decomposition.

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
        self.pca_ = PCA(self.n_components, random_state=self.random_state).fit(rows)
        self.shape_ = tuple(np.shape(X)[1:])
        return self

    def transform(self, X: Any) -> Rows:
        """Components, then the length of the rest."""
        check_is_fitted(self, "pca_")
        if tuple(np.shape(X)[1:]) != self.shape_:
            raise InputError(f"rows have the shape {np.shape(X)[1:]}, at fit it was {self.shape_}")
        rows = _flat(X)
        found = self.pca_.transform(rows)
        rest = np.linalg.norm(rows - self.pca_.inverse_transform(found), axis=1, keepdims=True)
        return np.hstack([found, rest]).astype(np.float32)

    def inverse_transform(self, X: Any) -> Rows:
        """The rows that have these components, and nothing beside."""
        check_is_fitted(self, "pca_")
        rows: Rows = self.pca_.inverse_transform(np.asarray(X)[:, : self.n_components]).astype(np.float32)
        return rows.reshape(len(rows), *self.shape_)


class OneSided(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Columns of which one side alone can be wrong: what lies far on the other side is brought to where that begins.

    To a density a loss that is lower than usual, or an answer that is surer, is as strange as one that is too high.
    After this it is not: all rows beyond a quantile are alike.

    Args:
        wrong: The side on which anomalies lie, ``low`` or ``high`` values.
        share: Of the training rows, on the other side, that are made alike.

    Example:
        >>> losses = OneSided("high").fit([[1.0], [2.0], [3.0], [4.0], [5.0]])
        >>> losses.transform([[-9.0], [3.0], [99.0]]).ravel().tolist()
        [2.0, 3.0, 99.0]
    """

    def __init__(self, wrong: Literal["low", "high"] = "low", *, share: float = 0.25) -> None:
        self.wrong = wrong
        self.share = share

    def fit(self, X: Any, y: Any = None) -> OneSided:
        """Find where the harmless side of each column begins, in rows ``(n, columns)``."""
        if self.wrong not in ("low", "high"):
            raise InputError(f"wrong must be 'low' or 'high', got {self.wrong!r}")
        if not 0 < self.share < 1:
            raise InputError(f"share must lie between 0 and 1, got {self.share!r}")
        rows = _flat(X)
        self.ends_ = np.quantile(rows, 1 - self.share if self.wrong == "low" else self.share, axis=0).astype(np.float32)
        return self

    def transform(self, X: Any) -> Rows:
        """Rows with their harmless side cut off."""
        check_is_fitted(self, "ends_")
        rows = _flat(X)
        if rows.shape[1] != len(self.ends_):
            raise InputError(f"rows have {rows.shape[1]} columns, at fit there were {len(self.ends_)}")
        cut = np.minimum if self.wrong == "low" else np.maximum
        return np.asarray(cut(rows, self.ends_), dtype=np.float32)


class TurnFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What a network makes of images that has learned to tell by how many quarters they are turned.

    To tell that, it has to know what upright images of the training set look like. No label is needed, but images must
    have an upright: it does not suit pictures from above, or round things.

    Args:
        width: Channels of the network's first convolution; eight times as many features.
        output: ``features`` of the upright image, or ``answers``: the image is turned into each of the four positions,
            and how little sure the network is of the right one is a column, ``−√(−log p)``: 0 where it is sure. Of an
            image unlike the training set it is less sure how it is turned. Logits are halved before, or most images
            would have the same answer; without the root tails would be longer. For :class:`OneSided`, since to be surer
            than usual is no fault, and then a detector with ``scaling="deviation", sigma=3, first_step_size=0.05``.
        epochs: Passes over the images, each of them in all four positions.
        batch_size: Images of a step, before they are turned.
        peak_rate: Highest learning rate.
        shift: Move images by up to so many pixels while training.
        random_state: Seed of weights and order.
        verbose: Progress: None shows it on a terminal, 1 everywhere, 0 nowhere.

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

    def fit(self, X: Any, y: Any = None) -> TurnFeatures:
        """Train on images ``(n, channels, side, side)``."""
        if self.output not in ("features", "answers"):
            raise InputError(f"output must be 'features' or 'answers', got {self.output!r}")
        self.pixels_ = PixelScale.fit(X)
        channels, height, width = self.pixels_.shape
        if height != width or height < 8:
            raise InputError(f"images must be square with a side of 8 or more to be turned, got {height} × {width}")
        images = torch.from_numpy(self.pixels_.encode(X))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(self.random_state, "turns"))
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
        """Features of upright images, or how sure the network is in each position."""
        check_is_fitted(self, "network_")
        images = torch.from_numpy(self.pixels_.encode(X))
        look = self._answers if self.output == "answers" else self._features
        with torch.no_grad():
            return torch.cat([look(part) for part in torch.split(images, CHUNK)]).numpy()

    def _features(self, images: Tensor) -> Tensor:
        features: Tensor = self.network_(images)[0]
        return features

    def _answers(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network_(_turned(images)[0])[1]
        answers = (logits / SOFTENED).log_softmax(1).reshape(TURNS, len(images), TURNS)
        return -torch.diagonal(answers, dim1=0, dim2=2).neg().clamp_min(0).sqrt()

    def told(self, X: Any) -> float:
        """Share of images, in all four positions, whose position is told rightly: how much there was to learn."""
        check_is_fitted(self, "network_")
        right = []
        for part in torch.split(torch.from_numpy(self.pixels_.encode(X)), CHUNK):
            turned, labels = _turned(part)
            right.append((self.network_(turned)[1].argmax(1) == labels).float())
        return float(torch.cat(right).mean())


def _turned(images: Tensor) -> tuple[Tensor, Tensor]:
    """Images in all four positions, one after the other, and by how many quarters they are turned."""
    turned = torch.cat([images.rot90(k, (2, 3)) for k in range(TURNS)])
    return turned, torch.arange(TURNS).repeat_interleave(len(images))


def _flat(X: Any) -> NDArray[np.floating]:
    rows = np.asarray(X)
    if rows.ndim < 2 or rows.dtype.kind not in "fiub":
        raise InputError(f"principal components are of arrays of numbers (n, …), got {rows.dtype}, {rows.ndim} axes")
    return rows.reshape(len(rows), -1).astype(np.float32)

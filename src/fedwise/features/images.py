"""Images: descriptors of quality with public bins: size, brightness, contrast, sharpness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ..errors import FedwiseError
from ..schema.schema import Column, Role

Floats = npt.NDArray[np.float64]

#: Columns for a schema. The bins are fixed: they come from no data.
IMAGE_COLUMNS = (
    Column("image_size", Role.FEATURE, bins=(0, 1024, 4096, 16384, 65536, 262144, 1048576, 1e12)),
    Column("image_brightness", Role.FEATURE, bins=(0, 0.05, 0.1, 0.15, 0.25, 0.4, 0.6, 1.01)),
    Column("image_contrast", Role.FEATURE, bins=(0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 1.01)),
    Column("image_sharpness", Role.FEATURE, bins=(0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 2, 4, 1e12)),
)


def describe_images(images: npt.NDArray[Any] | Sequence[npt.NDArray[Any]]) -> pl.DataFrame:
    """Quality of each image.

    Parameters
    ----------
    images
        Grey (height, width) or colour (height, width, channels) images, one array of them or a list of different
        sizes. Whole numbers lie between 0 and 255, others between 0 and 1.

    Returns
    -------
    table
        ``image_size`` (pixels), ``image_brightness`` (mean), ``image_contrast`` (standard deviation), and
        ``image_sharpness``: variance of the Laplacian over the variance of the image, small where it is blurred.
    """
    rows = [_describe(np.asarray(image)) for image in images]
    names = [column.name for column in IMAGE_COLUMNS]
    return pl.DataFrame({name: [row[i] for row in rows] for i, name in enumerate(names)})


def _describe(image: npt.NDArray[Any]) -> tuple[float, float, float, float]:
    if image.ndim not in (2, 3) or image.shape[0] < 3 or image.shape[1] < 3:
        raise FedwiseError(f"image must have at least 3 × 3 pixels, got an array of shape {image.shape}")
    whole = image.dtype.kind in "iub"
    grey = image.astype(np.float64) / (255.0 if whole and image.dtype.kind != "b" else 1.0)
    grey = grey.mean(axis=2) if grey.ndim == 3 else grey
    if not (grey.min() >= 0 and grey.max() <= 1):
        raise FedwiseError("image must have values between 0 and 255 (whole) or 0 and 1; scale it first")
    laplacian = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:] - 4 * grey[1:-1, 1:-1]
    spread = float(grey.var())
    sharpness = float(laplacian.var()) / spread if spread > 1e-8 else 0.0
    return float(grey.shape[0] * grey.shape[1]), float(grey.mean()), float(np.sqrt(spread)), sharpness

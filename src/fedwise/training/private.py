"""Private: DP-SGD at one client (Abadi et al. 2016).

The promise is per client and per record, for adding or removing one record: batches are drawn by Poisson
sampling, each row's gradient is clipped, Gaussian noise is added to every step, an empty batch included. It
holds for any parameters and settings a server may send; `checks` refuses some of them, for what they are.

Where the randomness comes from: noise and batches are read from a stream cipher under a key of 256 bits
from the operating system (`entropy`), a new one for each update. No torch or NumPy generator takes part.

What floating point leaves open: clipped row gradients are integers on a grid, their sum is exact, and the
noise is a Gaussian rounded to the same grid (`row_gradients`, `fedwise.privacy.gaussian`), so the noisy sum
is post-processing of a Gaussian mechanism with exactly the accounted sensitivity, and its low-order bits
tell nothing. For built-in networks nothing is left open but the time a row takes on the processor. For a
module of the user's own torch may round a row's gradient differently in batches of different sizes; the
grid does not cover what that changes in the parts of other rows.

What the server learns beside the parameters: the number of steps, hence ⌈rows / batch⌉, unless
`population` replaces the exact number by one that may be known; and the client's weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import DataError, FedwiseError
from ..privacy.gaussian import LARGEST, rounded_gaussian
from ..privacy.subsampled import sampling
from .checks import LARGEST_PARAMETER, check_instruction, check_module, check_parameters, check_request
from .encoding import Rows
from .engines import one_thread
from .entropy import Stream
from .local import ClientState, Instruction, LocalSettings, Update
from .model import Model, Vector
from .row_gradients import UNIT, row_gradients

__all__ = (
    "Privacy", "check_instruction", "check_module", "check_parameters", "check_request", "private_update",
)  # fmt: skip

Floats = npt.NDArray[np.float64]


class Privacy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The promise of the training phase: (epsilon, delta) for the whole of it, and the clipping norm."""

    epsilon: float
    delta: float = 1e-5
    clip: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise FedwiseError(f"training epsilon must be a positive number, got {self.epsilon}")
        if not 0 < self.delta < 1:
            raise FedwiseError(f"training delta must be between 0 and 1, got {self.delta}")
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise FedwiseError(f"clip must be a positive number, got {self.clip}")


def private_update(
    model: Model,
    parameters: Vector,
    rows: Rows,
    *,
    instruction: Instruction,
    client: str,
    round: int,
    noise_multiplier: float,
    clip: float = 1.0,
    state: ClientState | None = None,
    seed: int | None = None,
    population: float | None = None,
) -> Update:
    """Train on one client's rows with DP-SGD.

    A reply always leaves: a row whose gradient is not finite counts as zero, and parameters are held within
    `checks.LARGEST_PARAMETER` after each noisy step.

    Parameters
    ----------
    noise_multiplier
        Standard deviation of the noise over the clipping norm (see `privacy.subsampled.scale_noise`).
    clip
        Largest norm of one row's gradient.
    seed
        For simulations only, and the update says so. In deployment leave it out: the operating system
        gives the key.
    population
        A number of rows that may be known, such as the one a release tells: rate, steps and the mean's
        denominator are then made from it, and rows may be none at all. By default the exact number enters
        all three, and a server that counts steps or seconds can learn it.

    Returns
    -------
    Update
        Its ``privacy`` is (noise multiplier, sampling rate, steps), to be composed. Its loss is NaN: the
        loss on the rows is not covered by the promise and stays at the client.

    Raises
    ------
    FedwiseError
        The request is refused, before the rows are looked at.
    DataError
        There are no rows and no `population`.
    """
    check_request(model, parameters, instruction)
    if not 0 <= noise_multiplier * UNIT <= LARGEST:
        raise FedwiseError(f"noise multiplier must be between 0 and 2^24, got {noise_multiplier}")
    size = _size(rows, population, client)
    settings, kept = instruction.settings, dict(state or {})
    rate, steps = sampling(size, settings.batch, settings.epochs)
    stream = Stream.system() if seed is None else Stream.simulated(seed, round, client)
    vector = np.asarray(parameters, dtype=np.float32)
    engine = row_gradients(model, vector, rows)
    shift, old = None, None
    if instruction.control is not None:
        old = np.asarray(kept.get("control", np.zeros_like(instruction.control)))
        shift = engine.own(instruction.control - old)

    def noisy_mean(theta: Vector) -> Floats:
        total = engine.clipped_sum(theta, stream.sample(len(rows), rate), clip)
        total += rounded_gaussian(noise_multiplier * UNIT, len(theta), stream.words)
        # From steps of the grid to a mean over the expected batch.
        mean: Floats = total.astype(np.float64) * (clip / UNIT / (rate * size))
        return mean

    with one_thread():
        theta, summed = _descend(engine.own(vector), noisy_mean, steps, settings, shift)
    change = None
    if old is not None:
        fresh = engine.travel((summed / steps).astype(np.float32), np.zeros_like(vector))
        change = fresh - old
        kept["control"] = fresh
    return Update(
        client, engine.travel(theta, vector), math.floor(size + 0.5), math.nan, steps, kept, change,
        privacy=(noise_multiplier, rate, steps), simulated=seed is not None,
    )  # fmt: skip


def _size(rows: Rows, population: float | None, client: str) -> float:
    """The number of rows that sets rate, steps and denominator: the known one, or else the exact one."""
    if population is not None:
        if not math.isfinite(population):
            raise FedwiseError(f"population must be a finite number, got {population}")
        return max(1.0, population)
    if len(rows) == 0:
        raise DataError(f"client '{client}' has no training rows; leave it out of the federation")
    return float(len(rows))


def _descend(
    theta: Vector,
    noisy_mean: Callable[[Vector], Floats],
    steps: int,
    settings: LocalSettings,
    shift: Vector | None,
) -> tuple[Vector, Floats]:
    """Follow noisy gradients; returns parameters and the sum of the gradients. All of it is post-processing."""
    anchor, summed = theta.astype(np.float64), np.zeros(len(theta))
    move = _optimizer(settings, len(theta))
    for _ in range(steps):
        gradient = noisy_mean(theta)
        summed += gradient
        if shift is not None:
            gradient += shift
        if settings.mu:
            gradient += settings.mu * (theta - anchor)
        # Held within the bound, so that the next step and the server can work with them.
        moved = np.nan_to_num(theta - move(gradient), nan=0.0)
        theta = np.clip(moved, -LARGEST_PARAMETER, LARGEST_PARAMETER).astype(np.float32)
    return theta, summed


def _optimizer(settings: LocalSettings, size: int) -> Callable[[Floats], Floats]:
    """What a gradient moves the parameters by: plain SGD, or Adam (Kingma and Ba 2015) as torch has it."""
    lr = settings.lr
    if settings.optimizer == "sgd":
        return lambda gradient: lr * gradient
    first, second, taken = np.zeros(size), np.zeros(size), 0

    def adam(gradient: Floats) -> Floats:
        nonlocal taken
        taken += 1
        first[:] = 0.9 * first + 0.1 * gradient
        second[:] = 0.999 * second + 0.001 * gradient * gradient
        root = np.sqrt(second) / math.sqrt(1 - 0.999**taken) + 1e-8
        return (lr / (1 - 0.9**taken)) * first / root

    return adam

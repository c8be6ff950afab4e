"""Attacks on private training that worked on version 0.1.0, and the proof that each attack works.

A weak mechanism stands beside each attack: if the attack misses it, the test says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch

from fedwise.errors import FedwiseError
from fedwise.training.encoding import Rows
from fedwise.training.local import Instruction, LocalSettings, Update
from fedwise.training.model import Model
from fedwise.training.private import private_update

LEVELS, COUNT = 44, 50
#: Levels of the first column that no record has: their weights carry nothing but noise.
SILENT = slice(30, 40)


def make_rows(*, target: bool = True) -> Rows:
    """Three columns, of 40, 2 and 2 levels. The target alone has the inputs 29, 41 and 43."""
    rng = np.random.default_rng(0)
    level = np.stack([rng.integers(0, 29, COUNT), np.full(COUNT, 40), np.full(COUNT, 42)], axis=1)
    level[-1] = 29, 41, 43
    kept = COUNT if target else COUNT - 1
    return Rows(
        width=LEVELS,
        hot=level[:kept].astype(np.int32),
        dense=np.zeros((kept, 0), dtype=np.float32),
        dense_at=np.zeros(0, dtype=np.int64),
        y=(np.arange(kept) % 2).astype(np.float32),
        groups=np.zeros((1, kept), dtype=np.int16),
    )


def train(rows: Rows, vector: np.ndarray | None = None, *, model: Model | None = None, **more) -> Update:
    model = model or Model(LEVELS, ())
    fields = {
        "instruction": Instruction(LocalSettings(optimizer="sgd", lr=1.0, batch=10**6)), "client": "A", "round": 1,
        "noise_multiplier": 5.0, **more,
    }  # fmt: skip
    return private_update(
        model, np.zeros(model.size, np.float32) if vector is None else vector, rows, **fields
    )


def noise_of(update: Update, rows: int = COUNT) -> np.ndarray:
    """What a server reads off the silent weights of one step of SGD at rate 1: noise in units of the clip."""
    return -update.parameters[SILENT].astype(np.float64) * rows


def search(observed: np.ndarray, redraw: Callable[[int], np.ndarray], seeds: Iterable[int]) -> int | None:
    """The seed whose noise is the observed one (to single precision), if it is among `seeds`."""
    for seed in seeds:
        if np.allclose(redraw(seed), observed, rtol=1e-3, atol=1e-3):
            return seed
    return None


# Finding 1: noise that can be searched and subtracted.


def by_torch(seed: int) -> np.ndarray:
    """Noise on the silent weights if a torch generator with this seed draws the weights' noise."""
    generator = torch.Generator()
    generator.manual_seed(seed)
    return torch.normal(0.0, 5.0, (1, LEVELS), generator=generator)[0, SILENT].double().numpy()


def test_the_search_finds_a_torch_seed() -> None:
    """The attack itself: the low 32 bits of the seed are all that counts, here within a window of 2¹⁰."""
    secret = 0x5EED_0BAD_CAFE_F00D
    low = secret & 0xFFFF_FFFF
    observed = by_torch(secret)
    assert search(observed, by_torch, range(low - 512, low + 512)) == low


def test_no_torch_seed_makes_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where NumPy's entropy picks the seed of a torch generator, the search finds it. Version 0.1.0 did so.

    NumPy's unseeded generator is replaced by one the attacker knows, which stands for a window of 2¹⁰ out of
    the 2³² seeds.
    """
    real = np.random.default_rng
    monkeypatch.setattr(
        np.random, "default_rng", lambda entropy=None: real(1 if entropy is None else entropy)
    )
    update = train(make_rows())
    drawn = int(real(1).integers(2**63)) & 0xFFFF_FFFF
    assert search(noise_of(update), by_torch, range(drawn - 512, drawn + 512)) is None


def test_the_search_finds_a_stream_with_a_small_key_and_not_the_systems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same attack on our own stream: a key of 8 bits falls, a key of the operating system does not."""
    from fedwise.training import private
    from fedwise.training.entropy import Stream

    def small(key: int) -> Stream:
        return Stream(bytes([key] * 32))

    def redraw(key: int) -> np.ndarray:
        with monkeypatch.context() as patch:
            patch.setattr(private.Stream, "system", lambda: small(key))
            return noise_of(train(make_rows()))

    assert search(redraw(0xA7), redraw, range(256)) == 0xA7
    assert search(noise_of(train(make_rows())), redraw, range(256)) is None


def test_subtracting_found_noise_shows_the_target() -> None:
    """What the search is for: with the noise known, the gradient of the target's weight is −½ or 0 exactly."""
    for target, expected in ((True, 0.5), (False, 0.0)):
        rows = make_rows(target=target)
        known = train(rows, seed=3)
        exact = train(rows, seed=3, noise_multiplier=0.0)
        nothing = train(make_rows(target=False), seed=3, population=float(len(rows)))
        noise = nothing.parameters[29] * len(rows)
        assert abs(known.parameters[29]) * len(rows) > 0.01
        assert abs(known.parameters[29] * len(rows) - noise) == pytest.approx(expected, abs=1e-3)
        assert abs(exact.parameters[29]) * len(rows) == pytest.approx(expected, abs=1e-3)


def test_seeds_of_torch_and_numpy_do_not_decide_the_noise() -> None:
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)
        found.append(train(make_rows(), instruction=Instruction(LocalSettings(batch=8))).parameters)
    assert (found[0][SILENT] != found[1][SILENT]).all()


@pytest.mark.parametrize("kind", ["network", "module"])
def test_no_generator_of_torch_or_numpy_is_called(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def factory(inputs: int) -> torch.nn.Module:
        module = torch.nn.Linear(inputs, 1)
        torch.nn.init.zeros_(module.weight)
        return module

    model = Model(LEVELS, ()) if kind == "network" else Model(LEVELS, factory=factory)
    rows, size = make_rows(), model.size
    train(rows, np.zeros(size, np.float32), model=model)  # what loads at first use may draw

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a generator was called")

    for name in ("normal", "randn", "randn_like", "rand", "rand_like", "randperm", "bernoulli", "Generator"):
        monkeypatch.setattr(torch, name, never)
    monkeypatch.setattr(torch.Tensor, "normal_", never)
    for name in (
        "default_rng",
        "normal",
        "standard_normal",
        "random",
        "rand",
        "randn",
        "choice",
        "Generator",
    ):
        monkeypatch.setattr(np.random, name, never)
    update = train(
        rows, np.zeros(size, np.float32), model=model, instruction=Instruction(LocalSettings(batch=8))
    )
    assert (update.parameters != 0).all()
    assert update.simulated is False


# Finding 2: an overflow that only one record causes.


def overflowing(weight: float) -> tuple[Model, np.ndarray]:
    """Weights that are finite, and whose sum over the target's three levels is not; nobody else has one."""
    model = Model(LEVELS, (2,))
    arrays = {
        name: np.zeros(shape, np.float32) for name, shape in zip(model.names, model.shapes, strict=True)
    }
    arrays["0.weight"][:, [29, 41, 43]] = weight
    arrays["2.weight"][0] = 1.0
    return model, model.flatten(arrays)


def outcome(vector: np.ndarray, model: Model, *, target: bool, **more: object) -> str:
    """The kind of reply: what a server sees beside the numbers."""
    try:
        update = train(make_rows(target=target), vector, model=model, **more)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "finite" if np.isfinite(update.parameters).all() else "not finite"


@pytest.mark.parametrize("weight", [1.5e38, 3e38, 1e20, 1e4, 1e3])
@pytest.mark.parametrize("lr", [1e-4, 1e3])
def test_the_reply_does_not_tell_the_target(weight: float, lr: float) -> None:
    """The same kind of reply with and without the target, over and within the bound."""
    model, vector = overflowing(weight)
    instruction = Instruction(LocalSettings(optimizer="sgd", lr=lr, batch=8, epochs=2))
    replies = {
        outcome(vector, model, target=target, instruction=instruction)
        for target in (True, False)
        for _ in range(3)
    }
    assert len(replies) == 1
    assert "finite" in replies.pop() if weight <= 1e4 else "must be finite and at most" in replies.pop()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_reply_leaves_whatever_the_noise_does(optimizer: str) -> None:
    """Steps far beyond the bound: parameters are held there, nothing is raised, nothing is NaN."""
    model, vector = overflowing(1e4)
    control = np.full(model.size, 1e4, dtype=np.float32)
    settings = LocalSettings(optimizer=optimizer, lr=1e3, mu=1e6, batch=8, epochs=3)
    update = train(
        make_rows(),
        vector,
        model=model,
        noise_multiplier=1e5,
        instruction=Instruction(settings, control=control),
    )
    assert np.isfinite(update.parameters).all()
    assert np.abs(update.parameters).max() <= 1e4
    assert np.isfinite(update.control_change).all()
    assert math.isnan(update.loss)


def test_the_target_moves_the_sum_by_no_more_than_the_clip() -> None:
    """At the largest parameters, without noise: the sums of D and D ∪ {x} differ by at most the clip."""
    for weight in (1e4, 1e3, 1.0):
        model, vector = overflowing(weight)
        sums = [
            COUNT * (vector - train(
                make_rows(target=target), vector, model=model, noise_multiplier=0.0, population=float(COUNT)
            ).parameters.astype(np.float64))
            for target in (True, False)
        ]  # fmt: skip
        # Parameters of 10⁴ are rounded to 2⁻¹¹ on their way back.
        assert np.linalg.norm(sums[0] - sums[1]) <= 1 + COUNT * weight * 2.0**-24 * math.sqrt(model.size)


# Finding 11: buffers.


def test_means_do_not_leave_in_a_buffer() -> None:
    """Version 0.1.0 sent the exact mean of the inputs in BatchNorm's running mean."""

    def factory(inputs: int) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.BatchNorm1d(inputs, affine=False), torch.nn.Linear(inputs, 1))

    model = Model(LEVELS, factory=factory)
    with pytest.raises(FedwiseError, match="BatchNorm"):
        train(make_rows(), model.initial(0), model=model)

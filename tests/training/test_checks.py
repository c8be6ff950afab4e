"""What private training refuses, and that it refuses before it looks at the rows."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedwise.errors import FedwiseError
from fedwise.training.checks import LARGEST_PARAMETER
from fedwise.training.local import Instruction, LocalSettings
from fedwise.training.model import Model
from fedwise.training.private import (
    check_instruction,
    check_module,
    check_parameters,
    check_request,
    private_update,
)

WIDTH = 5


class Untouchable:
    """Rows that notice being looked at."""

    def __len__(self) -> int:
        raise AssertionError("rows were counted")

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"rows.{name} was read")


def refused(match: str, model: Model | None = None, **changes: object) -> None:
    model = model or Model(WIDTH, (3,))
    fields = {
        "parameters": np.zeros(model.size, np.float32),
        "instruction": Instruction(LocalSettings()),
        **changes,
    }
    with pytest.raises(FedwiseError, match=match):
        private_update(
            model, fields.pop("parameters"), Untouchable(), client="A", round=1,
            **{"noise_multiplier": 1.0, **fields},
        )  # fmt: skip


def _vector(value: float, dtype: type = np.float32) -> np.ndarray:
    out = np.zeros(Model(WIDTH, (3,)).size, dtype=dtype)
    out[-1] = value
    return out


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1.5e38, -10_001.0])
def test_parameters_out_of_bounds(value: float) -> None:
    refused("parameters must be finite and at most 10000 in magnitude", parameters=_vector(value))


def test_parameters_that_do_not_fit() -> None:
    refused("parameters must be a vector of 22 real numbers", parameters=np.zeros(3, np.float32))
    refused("parameters must be a vector of 22 real numbers", parameters=np.zeros(22, np.complex64))
    refused("parameters must be a vector of 22 real numbers", parameters=np.zeros(22, np.int64))


@pytest.mark.parametrize("control", [_vector(math.nan), _vector(1e20), np.zeros(3, np.float32)])
def test_a_hostile_control(control: np.ndarray) -> None:
    refused("control variate must be", instruction=Instruction(LocalSettings(), control=control))


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (LocalSettings(lr=1e30), "lr"),
        (LocalSettings(mu=1e30), "mu"),
        (LocalSettings(epochs=10**12), "epochs"),
        (LocalSettings(batch=10**12), "batch"),
    ],
)
def test_hostile_settings(settings: LocalSettings, word: str) -> None:
    refused(f"{word} must be at most", instruction=Instruction(settings))


def test_what_never_passed_a_constructor_is_refused_too() -> None:
    """NaN compares false with everything; a stand-in for settings has no checks of its own."""
    for lr in (math.nan, -1.0, math.inf):
        loose = SimpleNamespace(optimizer="sgd", lr=lr, batch=32, epochs=1, mu=0.0)
        with pytest.raises(FedwiseError, match="lr must be at most"):
            check_instruction(Model(WIDTH), Instruction(loose))


def test_weights_by_group_and_exact_sums() -> None:
    refused("exact sums by group", instruction=Instruction(LocalSettings(), report=True))
    refused("exact sums by group", instruction=Instruction(LocalSettings(), cell_weights=np.ones((2, 2))))


@pytest.mark.parametrize("noise", [math.nan, math.inf, -1.0])
def test_a_noise_that_is_none(noise: float) -> None:
    refused("noise multiplier must be between 0 and", noise_multiplier=noise)


def test_the_bound_itself_is_allowed() -> None:
    model = Model(WIDTH, (3,))
    check_request(
        model, _vector(LARGEST_PARAMETER), Instruction(LocalSettings(lr=1e3, epochs=1000, batch=10**6))
    )
    check_parameters(model, _vector(-LARGEST_PARAMETER))


class Running(torch.nn.Module):
    """A layer no list knows: it keeps a running mean."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(inputs, 1)
        self.register_buffer("mean", torch.zeros(inputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(dim=0))
        return self.layer(x)


class Mixing(torch.nn.Module):
    """Each row less the mean of the batch: one record reaches every row's gradient."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(inputs, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x - x.mean(dim=0))


def _with(*layers: torch.nn.Module):
    return lambda inputs: torch.nn.Sequential(torch.nn.Linear(inputs, 4), *layers, torch.nn.Linear(4, 1))


@pytest.mark.parametrize(
    ("factory", "match"),
    [
        (_with(torch.nn.BatchNorm1d(4)), "BatchNorm"),
        (_with(torch.nn.BatchNorm1d(4, affine=False)), "BatchNorm"),
        (_with(torch.nn.BatchNorm1d(4, affine=False, track_running_stats=False)), "BatchNorm"),
        (_with(torch.nn.Dropout(0.5)), "must not draw random numbers"),
        (Running, "must not change its buffer 'mean'"),
        (Mixing, "whatever the other rows are"),
    ],
    ids=["BatchNorm", "without affine", "without both", "Dropout", "running mean", "mixing"],
)
def test_modules_that_carry_data_past_the_noise(factory, match: str) -> None:
    torch.manual_seed(0)
    model = Model(WIDTH, factory=factory)
    refused(match, model=model, parameters=model.initial(0))


@pytest.mark.parametrize("layer", [torch.nn.ReLU(), torch.nn.LayerNorm(4), torch.nn.GroupNorm(2, 4)], ids=str)
def test_modules_that_keep_rows_apart(layer: torch.nn.Module) -> None:
    check_module(Model(WIDTH, factory=_with(layer)))


def test_the_check_leaves_torchs_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    check_module(Model(WIDTH, factory=_with(torch.nn.Tanh())))
    assert torch.equal(before, torch.random.get_rng_state())

"""Model: the vector that travels."""

import numpy as np
import pytest
import torch

from fedwise.errors import FedwiseError
from fedwise.training.model import Model


@pytest.mark.parametrize("hidden", [(), (3,), (32, 32, 32), (5, 7)])
def test_vector_is_torchs_state_dict(hidden: tuple[int, ...]) -> None:
    model = Model(11, hidden)
    vector = model.initial(4)
    state = model.module(vector).state_dict()
    assert tuple(state) == model.names
    np.testing.assert_array_equal(np.concatenate([v.numpy().ravel() for v in state.values()]), vector)
    np.testing.assert_array_equal(model.flatten(state), vector)
    np.testing.assert_array_equal(vector[model.to_kernel][model.from_kernel], vector)


def test_initial_is_he_uniform_and_seeded() -> None:
    model = Model(600, (400,))
    weights = model.split(model.initial(0))["0.weight"]
    bound = (6 / 600) ** 0.5
    assert np.abs(weights).max() <= bound
    # A uniform on ±b has standard deviation b/√3; 240,000 draws: the estimate is within 1% beyond 5 sigma.
    assert weights.std() == pytest.approx(bound / 3**0.5, rel=0.01)
    assert not model.split(model.initial(0))["0.bias"].any()
    np.testing.assert_array_equal(model.initial(3), model.initial(3))
    assert (model.initial(3) != model.initial(4)).any()


@pytest.mark.parametrize(("name", "hidden"), [("mlp", (32, 32, 32)), ("logistic", ()), ("64-8", (64, 8))])
def test_names(name: str, hidden: tuple[int, ...]) -> None:
    assert Model.named(name, 5).hidden == hidden


def test_an_unknown_name_suggests() -> None:
    with pytest.raises(FedwiseError, match=r"got 'logistik'; did you mean 'logistic'\?"):
        Model.named("logistik", 5)


def test_a_module_of_the_user() -> None:
    class Mine(torch.nn.Module):
        def __init__(self, inputs: int) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(inputs)
            self.out = torch.nn.Linear(inputs, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.norm(x)).squeeze(-1)

    model = Model(4, factory=Mine)
    vector = model.initial(0)
    np.testing.assert_array_equal(vector, model.initial(0))
    # The running statistics travel too; the integer counter of batches does not.
    assert "norm.running_var" in model.names
    assert "norm.num_batches_tracked" not in model.names
    np.testing.assert_array_equal(model.flatten(model.module(vector).state_dict()), vector)


def test_wrong_shapes_are_named() -> None:
    model = Model(4, ())
    with pytest.raises(FedwiseError, match="must be a vector of 5 numbers"):
        model.split(np.zeros(4, dtype=np.float32))
    with pytest.raises(FedwiseError, match=r"array '0.weight' must have shape \(1, 4\)"):
        model.flatten({"0.weight": np.zeros((4, 1)), "0.bias": np.zeros(1)})

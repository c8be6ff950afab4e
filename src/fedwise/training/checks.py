"""Checks: what a server may ask of private training. All of them run before any data is touched.

DP-SGD keeps its promise for any parameters and settings. These checks keep the *reply* independent of the
data as well: a request that could overflow, run forever or move data past the noise is refused for what it
is, not for what some record makes of it.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from ..errors import FedwiseError, MissingExtra
from .local import Instruction
from .model import Model, Vector, import_torch

#: Largest magnitude of a parameter, received or sent. Trained weights of the networks at hand are below
#: 100. Three layers of 32 units with weights of 10⁴ keep every logit (10²²) and gradient (10²⁰) far from
#: the end of single precision (10³⁸).
LARGEST_PARAMETER = 1e4
#: Largest settings a server may ask for: a node must come to an end.
LARGEST_LR, LARGEST_MU, LARGEST_EPOCHS, LARGEST_BATCH = 1e3, 1e6, 1000, 10**9


def check_request(model: Model, parameters: Vector, instruction: Instruction) -> None:
    """Refuse what private training must not answer: parameters, instruction or module.

    Raises
    ------
    FedwiseError
        The text speaks of the request only.
    """
    check_parameters(model, parameters)
    check_instruction(model, instruction)
    check_module(model)


def check_parameters(model: Model, parameters: Vector, *, what: str = "parameters") -> None:
    """Refuse a vector that does not fit the model, is not finite, or is larger than `LARGEST_PARAMETER`."""
    found = np.asarray(parameters)
    if found.shape != (model.size,) or found.dtype.kind != "f":
        raise FedwiseError(
            f"{what} must be a vector of {model.size} real numbers, got {found.dtype} of shape {found.shape}"
        )
    # NaN fails the comparison too.
    if not (np.abs(found) <= LARGEST_PARAMETER).all():
        raise FedwiseError(
            f"{what} must be finite and at most {LARGEST_PARAMETER:.0f} in magnitude for private training; "
            "the server sent others: lower its learning rate, or start it again"
        )


def check_instruction(model: Model, instruction: Instruction) -> None:
    """Refuse settings without a sensible bound, exact sums, and a control that does not fit."""
    if instruction.report or instruction.cell_weights is not None:
        raise FedwiseError(
            "this strategy asks for exact sums by group, which DP-SGD does not cover; "
            "use fedavg, fedprox, scaffold or fedadam"
        )
    check_settings(instruction)
    if instruction.control is not None:
        check_parameters(model, instruction.control, what="control variate")


def check_settings(instruction: Instruction) -> None:
    """Refuse settings without a sensible bound: a node must come to an end."""
    if instruction.attribute < 0:
        raise FedwiseError(f"attribute must be at least 0, got {instruction.attribute}")
    settings = instruction.settings
    for name, value, largest in (
        ("lr", settings.lr, LARGEST_LR),
        ("mu", settings.mu, LARGEST_MU),
        ("epochs", settings.epochs, LARGEST_EPOCHS),
        ("batch", settings.batch, LARGEST_BATCH),
    ):
        least = 0 if name == "mu" else 1 if name in ("epochs", "batch") else math.ulp(0.0)
        if not least <= value <= largest:
            raise FedwiseError(f"{name} must be at most {largest:g} and positive, got {value}")


def check_module(model: Model) -> None:
    """Refuse a module through which data could pass the noise.

    Opacus' validator names layers without a gradient by row. A trial on artificial inputs then shows what no
    list of layers can: buffers that training changes (running means travel with the parameters, without
    noise), rows that change each other's output, and random numbers (a torch generator keeps 32 bits of
    its seed, so a dropout mask can be guessed, and it depends on how many rows there are).
    """
    if model.built_in:
        return
    torch = import_torch()
    try:
        from opacus.validators import ModuleValidator
    except ImportError:
        raise MissingExtra("private training", "train") from None
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        module = model.module().train()
        errors = ModuleValidator.validate(module, strict=False)
        if errors:
            first = str(errors[0]).splitlines()[0]
            raise FedwiseError(f"module cannot be trained privately: {first}; replace that layer")
        _try_out(torch, module, model.inputs, model.task.outputs)


def _try_out(torch: Any, module: Any, inputs: int, outputs: int) -> None:
    before = {name: value.clone() for name, value in module.named_buffers()}
    probe = torch.linspace(-1.0, 1.0, 6 * inputs).reshape(inputs, 6).T.contiguous()
    probe = torch.where(torch.arange(6)[:, None] % 2 == 0, probe, torch.sin(7 * probe))
    random = torch.random.get_rng_state()
    with torch.no_grad():
        together = module(probe).reshape(-1)
        drawn = not torch.equal(random, torch.random.get_rng_state())
        try:
            alone = torch.cat([module(row[None]).reshape(-1) for row in probe])
        except ValueError:  # BatchNorm refuses a row without company
            alone = torch.full((len(probe) * outputs,), math.nan)
    after = dict(module.named_buffers())
    for name, value in before.items():
        if name not in after or not torch.equal(value, after[name]):
            raise FedwiseError(
                f"module must not change its buffer '{name}' while training: the buffer would carry data "
                "past the noise; use GroupNorm or LayerNorm in place of BatchNorm"
            )
    if drawn:
        raise FedwiseError(
            "module must not draw random numbers in private training: they can be guessed; remove dropout"
        )
    if together.shape != (len(probe) * outputs,) or not torch.allclose(together, alone, rtol=1e-3, atol=1e-5):
        raise FedwiseError(
            "module must give each row an output of its own, whatever the other rows are: private training "
            "bounds what one row can do; use GroupNorm or LayerNorm in place of BatchNorm"
        )

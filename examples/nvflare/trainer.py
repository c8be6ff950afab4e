"""What a site does in a round: logistic regression by gradient descent, on rows that stay there."""

import numpy as np
from nvflare.apis.executor import Executor
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fedwise.schema.schema import Schema


class Trainer(Executor):
    """Answers ``train`` tasks. Yours may be a Client API script; nothing in it knows of fedwise."""

    def __init__(self, folder="", steps=20):
        super().__init__()
        self.folder, self.steps = folder, steps

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        home = f"{self.folder}/{fl_ctx.get_identity_name()}"
        schema = Schema.load(f"{home}/schema.toml")
        codes = schema.encode(f"{home}/rows.parquet")
        inputs = np.concatenate(
            [np.eye(column.size)[codes[i]] for i, column in enumerate(schema.columns[:-1])], axis=1
        )
        labels = codes[len(schema.columns) - 1]
        weights = np.asarray(FLModelUtils.from_shareable(shareable).params["w"], dtype=float)
        for _ in range(self.steps):
            chance = 1 / (1 + np.exp(-inputs @ weights))
            weights = weights - 0.5 * inputs.T @ (chance - labels) / len(labels)
        loss = float(-np.mean(np.log(np.where(labels == 1, chance, 1 - chance))))
        model = FLModel(params={"w": weights}, params_type=ParamsType.FULL, metrics={"loss": loss})
        model.meta = {"NUM_STEPS_CURRENT_ROUND": len(labels)}
        return FLModelUtils.to_shareable(model)

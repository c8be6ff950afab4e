"""Task: flowers measured in the field, and a logistic regression of scikit-learn."""

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

FEATURES = ["petal_length", "petal_width", "sepal_length", "sepal_width"]


def load_data(partition_id: int, num_partitions: int):
    """Measurements of one partition, split for training and testing."""
    rng = np.random.default_rng(100 + partition_id)
    species = rng.integers(0, 2, 300 + 10 * num_partitions)
    centre = np.array([[3.0, 1.0, 5.5, 3.0], [5.0, 1.8, 6.5, 2.9]])[species]
    frame = pd.DataFrame(centre + rng.normal(0, 0.5, centre.shape), columns=FEATURES)
    frame["species"] = species
    cut = int(0.8 * len(frame))
    x, y = frame[FEATURES], frame["species"]
    return x[:cut], y[:cut], x[cut:], y[cut:]


def create_model(local_epochs: int):
    """A model that goes on from the weights it is given."""
    model = LogisticRegression(max_iter=local_epochs, warm_start=True)
    model.classes_, model.feature_names_in_ = np.array([0, 1]), np.array(FEATURES, dtype=object)
    model.coef_, model.intercept_ = np.zeros((1, len(FEATURES))), np.zeros(1)
    return model


def get_params(model):
    """Weights as a list of arrays."""
    return [model.coef_, model.intercept_]


def set_params(model, params):
    """Put weights into the model."""
    model.coef_, model.intercept_ = (np.array(array) for array in params)

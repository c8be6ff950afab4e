"""Task: census rows, a small network written in numpy, and how it is trained and tested."""

import numpy as np
import polars as pl


def load_partition(partition_id, num_partitions):
    """One partition of the people, as they were collected."""
    rng = np.random.default_rng(partition_id)
    rows = 400 + 50 * (partition_id % num_partitions)
    age, school = rng.integers(17, 90, rows), rng.integers(1, 17, rows)
    sex = rng.choice(["Female", "Male"], rows)
    score = 0.04 * age + 0.25 * school + 0.6 * (sex == "Male") + rng.normal(0, 1, rows)
    income = np.where(score > 4.5, ">50K", "<=50K")
    return pl.DataFrame({"age": age, "education-num": school, "sex": sex, "income": income})


def load_data(partition_id, num_partitions):
    """Inputs and labels of a partition, split for training and testing."""
    frame = load_partition(partition_id, num_partitions)
    inputs = np.column_stack([frame["age"] / 90, frame["education-num"] / 16, frame["sex"] == "Male"])
    labels = (frame["income"] == ">50K").to_numpy().astype(np.float32)
    cut = int(0.8 * len(labels))
    return (inputs[:cut], labels[:cut]), (inputs[cut:], labels[cut:])


def get_model():
    """First weights: one for each input, and one more."""
    return np.zeros(4, dtype=np.float32)


def predict(weights, inputs):
    """Chance of a high income."""
    return 1 / (1 + np.exp(-(inputs @ weights[:3] + weights[3])))


def train(weights, data, steps=30):
    """Gradient descent on the log loss."""
    inputs, labels = data
    for _ in range(steps):
        error = predict(weights, inputs) - labels
        gradient = np.append(inputs.T @ error, error.sum()) / len(labels)
        weights = weights - 0.5 * gradient
    return weights.astype(np.float32)


def evaluate(weights, data):
    """Share of right answers."""
    inputs, labels = data
    return float(np.mean((predict(weights, inputs) > 0.5) == (labels > 0.5)))

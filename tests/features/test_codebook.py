"""Codebooks: fitted on public records, saved, checked, applied; the digest in schema, plan and data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import fedwise as fw
from fedwise.cli.main import app
from fedwise.errors import DataError, FedwiseError, SchemaError
from fedwise.features import IMAGE_COLUMNS, TEXT_COLUMNS, Codebook, describe_images, describe_texts, fit
from fedwise.features.extractor import extract

RNG = np.random.default_rng(0)
PUBLIC = RNG.random((300, 6, 6))
LABEL = fw.Column("y", "target", levels=tuple(range(3)))


def flat(images: Any) -> Any:
    return np.asarray(images).reshape(len(images), -1)[:, :12]


def book(**changes: Any) -> Codebook:
    return fit(PUBLIC, flat, **{"public": "drawn at random", "components": 3, "bins": 4, **changes})


def schema_of(codebook: Codebook) -> fw.Schema:
    return fw.Schema((*codebook.columns, LABEL), codebook=codebook.digest)


@pytest.mark.parametrize("kind", ["pca", "kmeans"])
def test_a_saved_codebook_gives_the_same_codes(kind: str, tmp_path: Path) -> None:
    made = book(kind=kind, codes=8)
    made.save(tmp_path / "book.safetensors")
    again = Codebook.load(tmp_path / "book.safetensors", digest=made.digest)
    table = again.apply(PUBLIC, flat)
    assert table.equals(made.apply(PUBLIC, flat))
    for column in made.columns:
        assert table[column.name].max() < column.size
        assert np.bincount(table[column.name]).min() > 0


def test_bins_of_components_hold_equal_shares_of_the_public_records() -> None:
    codes = book().apply(PUBLIC, flat)["feature_1"]
    assert np.bincount(codes).tolist() == [75, 75, 75, 75]


def test_components_are_those_of_greatest_variance() -> None:
    from sklearn.decomposition import PCA

    made = book()
    known = PCA(3).fit(flat(PUBLIC)).components_
    assert np.abs((made.arrays["components"] * known).sum(axis=1)) == pytest.approx(1.0, abs=1e-6)


def test_kmeans_finds_clear_clusters() -> None:
    centres = np.array([[0.0, 0], [5, 0], [0, 5]])
    points = np.concatenate([centre + 0.1 * RNG.normal(size=(50, 2)) for centre in centres])
    made = fit(points, public="drawn", kind="kmeans", codes=3)
    codes = made.apply(points)["feature_code"].to_numpy().reshape(3, 50)
    assert len({line[0] for line in codes}) == 3
    assert (codes == codes[:, :1]).all()


def test_private_records_must_be_called_public_by_somebody(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        fit(PUBLIC, flat)  # type: ignore[call-arg]
    with pytest.raises(FedwiseError, match="never fit a codebook on private rows"):
        fit(PUBLIC, flat, public=" ")
    assert "fitted on public records: drawn at random" in str(book())
    np.save(tmp_path / "scans.npy", PUBLIC)
    (tmp_path / "policy.toml").write_text("")
    done = CliRunner().invoke(
        app,
        [
            "features",
            "fit",
            str(tmp_path / "scans.npy"),
            "--public",
            "x",
            "-o",
            str(tmp_path / "b.safetensors"),
        ],
    )
    assert isinstance(done.exception, FedwiseError)
    assert "must be public, but they lie beside 'policy.toml'" in str(done.exception)


def test_a_doctored_codebook_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "book.safetensors"
    book().save(path)
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(FedwiseError, match="does not match its digest: it was edited or damaged"):
        Codebook.load(path)
    path.write_bytes(b"none")
    with pytest.raises(FedwiseError, match="is damaged or not a codebook"):
        Codebook.load(path)


def test_another_codebook_is_refused(tmp_path: Path) -> None:
    made, other = book(), book(bins=5)
    other.save(tmp_path / "other.safetensors")
    with pytest.raises(FedwiseError, match=f"must be the one of the plan, {made.digest[:12]}"):
        Codebook.load(tmp_path / "other.safetensors", digest=made.digest)
    table = other.apply(PUBLIC, flat).with_columns(y=pl.lit(0))
    with pytest.raises(DataError, match="features must all be made with codebook"):
        schema_of(made).encode(table)
    with pytest.raises(DataError, match="column 'codebook' is missing from the data"):
        schema_of(made).encode(table.drop("codebook"))
    with pytest.raises(SchemaError, match="64 hexadecimal digits"):
        fw.Schema((*made.columns, LABEL), codebook="abc")


def test_another_extractor_is_refused() -> None:
    with pytest.raises(FedwiseError, match="extractor must give 12 numbers for each record"):
        book().apply(PUBLIC, lambda images: flat(images)[:, :5])
    with pytest.raises(FedwiseError, match="gives other numbers for the codebook's own examples"):
        book().apply(PUBLIC, lambda images: 2 * flat(images))


def test_extractors_of_every_kind() -> None:
    import torch
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(PUBLIC.reshape(300, -1))
    assert extract(scaler, PUBLIC).shape == (300, 36)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 5))
    assert extract(module, PUBLIC).shape == (300, 5)
    assert module.training

    class Session:
        def get_inputs(self) -> list[Any]:
            return [type("Input", (), {"name": "x"})]

        def run(self, _: None, feed: dict[str, Any]) -> list[Any]:
            return [feed["x"].reshape(len(feed["x"]), -1)]

    assert extract(Session(), PUBLIC).shape == (300, 36)
    with pytest.raises(FedwiseError, match="extractor must be a torch module"):
        extract(object(), PUBLIC)
    with pytest.raises(FedwiseError, match="one line for each record"):
        extract(lambda images: flat(images)[:3], PUBLIC)


def test_the_plan_names_the_codebook_and_old_schemas_keep_their_digests() -> None:
    made = book()
    plan = fw.plan(schema_of(made), 1.0)
    assert made.digest[:12] in str(plan)
    assert plan.schema.codebook == made.digest
    assert fw.Schema.parse(plan.schema.to_toml()).digest == plan.schema.digest
    assert b"codebook" not in msgspec.json.encode(fw.Schema((*made.columns, LABEL)))


def test_from_images_to_a_selection_and_doubles() -> None:
    made = book()
    plan = fw.plan(schema_of(made), 50.0)
    releases = []
    for i in range(4):
        images = np.random.default_rng(i).random((200, 6, 6))
        table = made.apply(images, flat).with_columns(y=pl.Series((flat(images)[:, 0] * 3).astype(int)))
        releases.append(fw.release(plan, table, client=f"c{i}", simulated=True, seed=i))
    pool = fw.Pool.of(releases)
    assert len(fw.select(pool, 2).clients) == 2
    double = fw.doubles(pool, seed=0)["c0"]
    assert plan.schema.encode(double).shape[0] == 4


def test_blurred_images_are_less_sharp() -> None:
    images = np.random.default_rng(0).random((5, 20, 20))
    blurred = np.stack([(im[1:, 1:] + im[:-1, 1:] + im[1:, :-1] + im[:-1, :-1]) / 4 for im in images])
    clear, dull = describe_images(images), describe_images(blurred)
    assert (dull["image_sharpness"] < clear["image_sharpness"] / 2).all()
    assert clear["image_size"].to_list() == [400.0] * 5
    fw.Schema((*IMAGE_COLUMNS, LABEL)).encode(clear.with_columns(y=pl.lit(1)))
    whole = describe_images((images * 255).round().astype(np.uint8))
    assert np.allclose(whole["image_brightness"], clear["image_brightness"], atol=0.01)
    with pytest.raises(FedwiseError, match="values between 0 and 255"):
        describe_images(images * 3)


def test_descriptors_of_texts() -> None:
    texts = ["The cat sat on the mat and it was happy.", "Der Hund ist nicht auf dem Sofa.", "", "zzz qqq"]
    found = describe_texts(texts)
    assert found["text_language"].to_list() == ["en", "de", "unknown", "unknown"]
    assert found["text_words"].to_list() == [10, 7, 0, 2]
    fw.Schema((*TEXT_COLUMNS, LABEL)).encode(found.with_columns(y=pl.lit(1)))


def test_the_command_line_from_fit_to_apply(tmp_path: Path) -> None:
    run = CliRunner()
    np.save(tmp_path / "public.npy", PUBLIC.reshape(300, -1))
    made = run.invoke(
        app,
        ["features", "fit", str(tmp_path / "public.npy"), "--public", "drawn", "-o", str(tmp_path / "b.safetensors"),
         "--json"],
        catch_exceptions=False,
    )  # fmt: skip
    assert made.exit_code == 0
    np.savez(tmp_path / "own.npz", records=PUBLIC[:50].reshape(50, -1), y=np.arange(50) % 3)
    done = run.invoke(
        app,
        ["features", "apply", str(tmp_path / "own.npz"), "--codebook", str(tmp_path / "b.safetensors"), "-o",
         str(tmp_path / "own.csv")],
        catch_exceptions=False,
    )  # fmt: skip
    assert done.exit_code == 0
    codebook = Codebook.load(tmp_path / "b.safetensors")
    assert schema_of(codebook).encode(tmp_path / "own.csv").shape == (5, 50)

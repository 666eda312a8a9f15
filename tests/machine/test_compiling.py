"""Compiling for several cores changes the speed, not the maths; what was compiled is kept in a private folder."""

import os
from pathlib import Path

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.errors import UserError
from dcp.machine import compiling


def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.grad(lambda w: (jax.nn.swish(x @ w) ** 2).sum())(w)


def test_products_by_eigen_equal_xlas_own_choice():
    x, w = jax.random.normal(jax.random.key(0), (2, 64, 64))
    plain = jax.jit(layer)(x, w)
    eigen = jax.jit(layer, compiler_options=compiling.EIGEN_DOTS)(x, w)
    assert_allclose(eigen, plain, rtol=1e-4, atol=1e-4 * float(np.abs(plain).max()))


def test_an_option_that_xla_does_not_know_is_done_without(monkeypatch):
    monkeypatch.setattr(compiling, "EIGEN_DOTS", {"xla_no_such_option": ""})
    monkeypatch.setattr(compiling, "cores", lambda: 2)
    assert compiling.compiler_options() is None


def test_one_core_takes_xlas_own_choice(monkeypatch):
    monkeypatch.setattr(compiling, "cores", lambda: 1)
    assert compiling.compiler_options() is None
    monkeypatch.setattr(compiling, "cores", lambda: 2)
    assert compiling.compiler_options() == compiling.EIGEN_DOTS


def test_on_a_gpu_loops_go_into_graphs_unless_the_user_says_otherwise(precision, monkeypatch):
    """Compiled for one by benchmarks/gpu_launches.py; here it is what is asked for that counts."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(compiling, "_accepted", lambda options: True)
    monkeypatch.delenv(compiling.GRAPHS_VARIABLE, raising=False)
    options = compiling.compiler_options()
    assert options is not None and "WHILE" in str(options["xla_gpu_enable_command_buffer"])
    monkeypatch.setenv(compiling.GRAPHS_VARIABLE, "xla")
    assert compiling.compiler_options() is None
    monkeypatch.setenv(compiling.GRAPHS_VARIABLE, "off")
    assert compiling.compiler_options() == {"xla_gpu_enable_command_buffer": ""}
    monkeypatch.setenv(compiling.GRAPHS_VARIABLE, "on")
    with pytest.raises(UserError, match="one of loops, xla, off"):
        compiling.compiler_options()


def test_products_keep_full_precision_on_a_gpu_and_are_left_alone_elsewhere(precision, monkeypatch):
    jax.config.update("jax_default_matmul_precision", None)
    compiling.compiler_options()
    assert jax.config.jax_default_matmul_precision is None  # a CPU: its bits are as they were
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(compiling, "_accepted", lambda options: True)
    compiling.compiler_options()
    assert jax.config.jax_default_matmul_precision == "highest"
    jax.config.update("jax_default_matmul_precision", "tensorfloat32")
    compiling.compiler_options()
    assert jax.config.jax_default_matmul_precision == "tensorfloat32"


def test_options_are_tried_on_a_loop_and_refused_where_xla_does_not_know_them():
    assert compiling._accepted(tuple(compiling.EIGEN_DOTS.items()))
    assert not compiling._accepted((("xla_no_such_option", 1),))


class TestCompilationCache:
    @pytest.fixture(autouse=True)
    def restore(self):
        before = jax.config.values["jax_compilation_cache_dir"]
        yield
        jax.config.update("jax_compilation_cache_dir", before)

    def test_a_cache_that_jax_has_already_is_kept(self, tmp_path: Path):
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        assert compiling.enable_cache() == tmp_path

    def test_the_default_lies_in_the_users_cache(self, tmp_path: Path, monkeypatch):
        jax.config.update("jax_compilation_cache_dir", None)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert compiling.enable_cache() == tmp_path / "dcp" / "xla"
        assert jax.config.values["jax_compilation_cache_dir"] == str(tmp_path / "dcp" / "xla")

    def test_off_turns_it_off(self, tmp_path: Path, monkeypatch):
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        assert compiling.enable_cache("off") is None
        assert jax.config.values["jax_compilation_cache_dir"] is None
        monkeypatch.setenv("DCP_CACHE_DIR", "off")
        assert compiling.enable_cache() is None
        assert jax.config.values["jax_compilation_cache_dir"] is None

    def test_a_folder_that_cannot_be_written_is_done_without(self, tmp_path: Path):
        (tmp_path / "file").write_text("in the way")
        assert compiling.enable_cache(tmp_path / "file" / "cache") is None

    def test_it_is_made_for_its_user_alone(self, tmp_path: Path, monkeypatch):
        jax.config.update("jax_compilation_cache_dir", None)
        before = os.umask(0)
        try:
            assert compiling.enable_cache(tmp_path / "xla") == tmp_path / "xla"
        finally:
            os.umask(before)
        assert (tmp_path / "xla").stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize(
        ("mode", "user", "sentence"),
        [(0o770, 0, "can be written by others"), (0o707, 0, "can be written"), (0o700, 1, "belongs to another user")],
    )
    def test_one_that_others_can_write_into_is_left_out(
        self, mode: int, user: int, sentence: str, tmp_path: Path, monkeypatch, capsys
    ):
        jax.config.update("jax_compilation_cache_dir", None)
        tmp_path.chmod(mode)
        monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + user)
        assert compiling.enable_cache(tmp_path) is None
        assert jax.config.values["jax_compilation_cache_dir"] is None
        said = capsys.readouterr().err
        assert sentence in said and said.count("\n") == 1

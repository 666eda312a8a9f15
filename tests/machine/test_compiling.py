"""Compiling for several cores changes the speed, not the maths."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from dcp.errors import UserError
from dcp.machine import compiling as compiler


def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.grad(lambda w: (jax.nn.swish(x @ w) ** 2).sum())(w)


def test_products_by_eigen_equal_xlas_own_choice():
    x, w = jax.random.normal(jax.random.key(0), (2, 64, 64))
    plain = jax.jit(layer)(x, w)
    eigen = jax.jit(layer, compiler_options=compiler.EIGEN_DOTS)(x, w)
    assert_allclose(eigen, plain, rtol=1e-4, atol=1e-4 * float(np.abs(plain).max()))


def test_an_option_that_xla_does_not_know_is_done_without(monkeypatch):
    monkeypatch.setattr(compiler, "EIGEN_DOTS", {"xla_no_such_option": ""})
    monkeypatch.setattr(compiler, "_cores", lambda: 2)
    assert compiler.compiler_options() is None


def test_one_core_takes_xlas_own_choice(monkeypatch):
    monkeypatch.setattr(compiler, "_cores", lambda: 1)
    assert compiler.compiler_options() is None
    monkeypatch.setattr(compiler, "_cores", lambda: 2)
    assert compiler.compiler_options() == compiler.EIGEN_DOTS


def test_on_a_gpu_loops_go_into_graphs_unless_the_user_says_otherwise(monkeypatch):
    """Compiled for one by benchmarks/gpu_launches.py; here it is what is asked for that counts."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(compiler, "_accepted", lambda options: True)
    monkeypatch.delenv(compiler.GRAPHS_VARIABLE, raising=False)
    options = compiler.compiler_options()
    assert options is not None and "WHILE" in str(options["xla_gpu_enable_command_buffer"])
    monkeypatch.setenv(compiler.GRAPHS_VARIABLE, "xla")
    assert compiler.compiler_options() is None
    monkeypatch.setenv(compiler.GRAPHS_VARIABLE, "off")
    assert compiler.compiler_options() == {"xla_gpu_enable_command_buffer": ""}
    monkeypatch.setenv(compiler.GRAPHS_VARIABLE, "on")
    with pytest.raises(UserError, match="one of loops, xla, off"):
        compiler.compiler_options()


def test_options_are_tried_on_a_loop_and_refused_where_xla_does_not_know_them():
    assert compiler._accepted(tuple(compiler.EIGEN_DOTS.items()))
    assert not compiler._accepted((("xla_no_such_option", 1),))


def test_a_program_is_made_once_for_an_environment_and_each_time_for_one_without_a_hash():
    made = []
    make = compiler.cached_by_env(lambda env, steps: made.append((env, steps)) or len(made))
    assert [make("env", 3), make("env", 3), make("env", 4)] == [1, 1, 2]
    assert [make(["env"], 3), make(["env"], 3)] == [3, 4]

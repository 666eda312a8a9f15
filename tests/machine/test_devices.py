"""Environments split over two virtual devices: the same experience, and nothing large passes between them."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest
from jax.sharding import Mesh
from numpy.testing import assert_allclose

from dcp.algorithm import make_algorithm
from dcp.envs.registry import make_env
from dcp.errors import UserError
from dcp.machine import compiling, programs, seed_programs
from dcp.machine.checks import violations
from dcp.machine.devices import ONE_DEVICE, count_devices, make_split, prepare, splitting_pays
from dcp.machine.programs import on_devices
from tests.support.tiny import tiny_config
from tests.support.toys import BrittleLine

PHYSICS, KINEMATIC = BrittleLine().spec, make_env("point_u_maze").spec


@cache
def report(asked: str):
    env = {name: value for name, value in os.environ.items() if name not in ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")}
    command = [sys.executable, "-m", "tests.support.two_devices", asked]
    done = subprocess.run(command, env=env, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("fidelity", ["paper", pytest.param("fixed", marks=pytest.mark.slow)])
def test_two_devices_gather_the_same_experience_as_one(fidelity: str):
    seen = report(fidelity)
    assert seen["devices"] == 2  # as the config asked for, before JAX started
    assert seen["gap"] < 1e-4
    assert seen["ids_equal"]


def test_environments_and_replay_are_split_along_n_and_the_pool_is_not():
    seen = report("paper")
    assert seen["replay"] == "P(None, 'envs')"
    assert seen["physics"] == "P('envs',)"
    assert seen["pool_whole"]


@pytest.mark.parametrize("fidelity", ["paper", pytest.param("fixed", marks=pytest.mark.slow)])
def test_neither_the_replay_nor_the_environments_states_pass_between_devices(fidelity: str):
    """What does pass is what the pool and the metrics need of all 16 environments."""
    seen = report(fidelity)["collectives"]
    assert seen["windows"] == []
    assert max(seen["collect"]) <= 25 * 16 * 2  # the places of one unroll, for the share of cells visited


def test_the_updates_are_compiled_once():
    assert report("paper")["programs_of_updates"] == 1


def test_a_batch_that_is_split_teaches_what_a_whole_one_teaches():
    seen = report("paper")["split_batches"]
    assert (seen["unsplit_on"], seen["split_on"], seen["whole"]) == (1, 2, True)
    assert seen["moved"] > 1e-3  # of the parameters, in eight updates
    assert seen["gap"] < 1e-5
    assert seen["deployed_gap"] < 1e-5
    assert seen["seen"][0] == seen["seen"][1] > 0  # states that the running scale of inputs has seen
    assert seen["loss_gap"] < 1e-5
    assert seen["collectives"]  # each device has its half: gradients are summed, and the goals of all gathered


@pytest.mark.parametrize(
    ("backend", "batch_size", "devices", "pays"),
    [
        ("cpu", 256, 2, False),  # virtual devices share their threads
        ("gpu", 256, 1, False),
        ("gpu", 256, 8, False),  # 32 rows each
        ("gpu", 8192, 8, True),
        ("gpu", 8190, 8, False),  # cannot be shared out
    ],
)
def test_batches_are_split_where_it_pays(backend, batch_size, devices, pays, monkeypatch):
    monkeypatch.setattr("jax.default_backend", lambda: backend)
    assert splitting_pays(batch_size, devices) is pays


@pytest.mark.parametrize(("asked", "kept"), [(None, "off"), ("on", "on"), ("off", "off")])
def test_whether_batches_are_split_is_written_down(asked, kept):
    assert on_devices(make_algorithm(tiny_config(split_batches=asked))).config.split_batches == kept


def test_a_batch_that_devices_cannot_share_out_evenly_gives_one_sentence():
    with pytest.raises(UserError, match="devices 16 cannot share out batch_size 3 evenly: use split_batches off, or"):
        tiny_config(devices=16, batch_size=3, split_batches="on")


@pytest.mark.slow
def test_a_run_on_two_devices_continues_bit_by_bit():
    assert report("resumed") == {"devices": 2, "evaluations": 2}


@pytest.mark.slow
def test_a_run_on_two_devices_learns_what_a_run_on_one_learns():
    *two, one = report("trained")  # without and with its batches split
    for seen in two:
        assert one.keys() == seen.keys()
        for name in ("critic_loss", "actor_loss", "alpha", "final_distance", "pool_spread"):
            assert_allclose(seen[name], one[name], rtol=0.02, err_msg=name)


@pytest.mark.parametrize(
    ("devices", "num_envs", "spec", "there", "count"),
    [
        (None, 512, KINEMATIC, 4, 1),  # too little work to share out
        (None, 512, PHYSICS, 4, 4),
        (None, 512, PHYSICS, 6, 4),  # the most that share 512 out evenly
        (None, 7, PHYSICS, 4, 1),
        (2, 512, PHYSICS, 4, 2),
        (2, 512, KINEMATIC, 4, 2),
    ],
)
def test_physics_takes_every_device_that_shares_out_evenly(devices, num_envs, spec, there, count, monkeypatch):
    monkeypatch.setattr("jax.local_device_count", lambda: there)
    assert count_devices(devices, num_envs, spec) == count


def test_more_devices_than_there_are_give_one_sentence():
    (problem,) = violations(tiny_config(devices=2))
    assert "devices is 2, but JAX has 1: use at most 1, or set JAX_NUM_CPU_DEVICES=2" in problem
    with pytest.raises(UserError, match="use at most 1"):
        make_split(2)


def test_devices_that_cannot_share_out_evenly_give_one_sentence():
    with pytest.raises(UserError, match="devices 3 cannot share out num_envs 16 evenly: try num_envs 18"):
        tiny_config(devices=3)


def test_an_uneven_number_of_episodes_is_not_split():
    class Two(type(ONE_DEVICE)):
        count = 2

    two = Two()
    assert two.if_divides(8) is two
    assert two.if_divides(7) is ONE_DEVICE


def test_no_device_gives_up_on_another_and_what_jax_was_told_is_kept(monkeypatch):
    """XLA's own limit is 40 s, and then the process is gone. JAX was told of one device by conftest.py."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/nowhere")
    prepare(None, KINEMATIC)
    assert os.environ["XLA_FLAGS"] == "--xla_dump_to=/nowhere"  # nothing is split: nothing is touched
    for _ in range(2):
        prepare(2, PHYSICS)
        flags = os.environ["XLA_FLAGS"].split()
        assert flags == ["--xla_dump_to=/nowhere", "--xla_cpu_collective_call_terminate_timeout_seconds=86400"]
    assert jax.local_device_count() == 1


def test_programs_over_several_devices_are_compiled_with_our_options_too(monkeypatch):
    """XLA's own choice runs a pusher's unroll on two virtual devices at a seventh of the speed."""
    seen: list[dict] = []
    monkeypatch.setattr(jax, "jit", lambda function, **options: seen.append(options))
    monkeypatch.setattr(compiling, "compiler_options", lambda: {"some": "option"})
    for count in (1, 2):
        compiled: Any = SimpleNamespace(donate=False, split=SimpleNamespace(count=count))
        programs._Jitted._jit(compiled, id, lambda: None)
    for mesh in (None, Mesh(jax.local_devices(), (seed_programs.AXIS,))):
        compiled = SimpleNamespace(donate=False, _mesh=mesh)
        seed_programs._Jitted._jit(compiled, id, (0,), 0)
    assert [options["compiler_options"] for options in seen] == [{"some": "option"}] * 4

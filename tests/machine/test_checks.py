"""What is checked before a run: settings, the environment, and whether the run fits into memory."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from dcp.algorithm import make_algorithm
from dcp.config import Config, Settings
from dcp.envs.registry import ENVIRONMENTS, make_env
from dcp.errors import UserError
from dcp.interfaces import hindsight_of
from dcp.learner import Learner
from dcp.machine.checks import memory_parts, violations
from dcp.methods.table import CRITICS, make_agent, needs
from dcp.replay import relabel
from dcp.runs.seeds import require_memory
from dcp.types import Array, Batch, EnvSpec, Transition
from tests.support.tiny import tiny_config
from tests.support.toys import BrittleLine


def test_a_check_of_ours_traces_nothing_and_of_a_users_own_it_does(monkeypatch):
    traced: list[str] = []

    def spy(name, env):
        traced.append(name)
        return []

    monkeypatch.setattr("dcp.envs.contract.contract_violations", spy)
    monkeypatch.setitem(ENVIRONMENTS, "my_line", BrittleLine)
    assert violations(tiny_config()) == violations(tiny_config(env="my_line", episode_length=50)) == []
    assert traced == ["my_line"]


def test_fidelity_and_physics_reach_the_environment(monkeypatch):
    asked: list[tuple[str, str, str]] = []

    def spy(name, fidelity="paper", physics="brax", randomize=None, control="joints"):
        asked.append((name, fidelity, physics))
        return make_env(name, fidelity, physics, randomize, control)

    monkeypatch.setattr("dcp.envs.registry.make_env", spy)
    config = tiny_config(env="ant_u_maze", fidelity="fixed", physics="mujoco", eval_env="ant_u_maze_eval")
    assert violations(config) == []
    make_algorithm(config)
    assert asked == [("ant_u_maze", "fixed", "mujoco"), ("ant_u_maze_eval", "fixed", "mujoco")] * 2


def test_an_unknown_physics_is_told_once():
    settings = Settings(env="ant_u_maze", physics="bullet")  # pyright: ignore[reportArgumentType]
    assert violations(settings) == ["unknown physics 'bullet': choose one of brax, mujoco"]


@pytest.mark.parametrize(
    "network",
    [{"layer_norm": True}, {"network": "residual", "depth": 8}, {"depth": 67}, {"network": "residual", "depth": 68}],
    ids=["mlp", "residual", "deep", "deep residual"],
)
@pytest.mark.parametrize("rates", [{}, {"alpha_learning_rate": 1e-2}], ids=["one Adam", "three"])
def test_the_learners_bytes_are_those_of_its_state(rates: dict[str, float], network: dict[str, Any]):
    """Only the counters of one Adam or of three differ. Deep networks are counted from shallow ones."""
    trainer = make_algorithm(tiny_config(**network, **rates))
    state = jax.eval_shape(trainer.learner.init, jax.random.key(0))
    there = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    counted = memory_parts(trainer.config, trainer.env.spec)["learner and its optimizer"]
    assert 0 <= counted - there <= 8


@pytest.mark.parametrize("critic", [name for name in CRITICS if name != "contrastive"])
def test_the_bytes_of_every_critics_learner_are_those_of_its_state(critic: str):
    """Target networks, TD3's slow actor and counters among them."""
    trainer = make_algorithm(tiny_config(method="crl", critic=critic))
    state = jax.eval_shape(trainer.learner.init, jax.random.key(0))
    there = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    assert memory_parts(trainer.config, trainer.env.spec)["learner and its optimizer"] == there


@pytest.mark.slow
@pytest.mark.parametrize("critic", CRITICS)
def test_the_bytes_of_every_critics_update_are_near_those_that_xla_plans(critic: str):
    """Within a third: SRL's hazards of 1,000 bins, TMD's components, TD-InfoNCE's four networks."""
    config = Config(env="ant_u_maze", method="crl", critic=critic).resolve(1000)
    spec = EnvSpec("ant_u_maze", 29, 2, 8, (0, 1), 0.5, 1000)
    learner = Learner(config, spec, make_agent(config, spec))
    shapes: Any = [jax.ShapeDtypeStruct((2, config.batch_size, size), jnp.float32) for size in (29, 8, 2)]
    flags: Any = [jax.ShapeDtypeStruct((2, config.batch_size), kind) for kind in (jnp.int32, bool)]
    hindsight = hindsight_of(learner.agent.critic)
    batch = jax.eval_shape(
        lambda rows: relabel(rows, spec, 0.99, jax.random.key(0), needs(learner.agent), hindsight),
        Transition(*shapes, *flags),
    )
    state = jax.eval_shape(learner.init, jax.random.key(0))
    program = jax.jit(lambda *given: learner.step(*given[:3], key=given[3]))
    planned = program.lower(state, batch, batch.action, jax.random.key(0)).compile().memory_analysis()
    assert planned is not None
    assert memory_parts(config, spec)["one update"] == pytest.approx(planned.temp_size_in_bytes, rel=0.34)


@pytest.mark.parametrize("critic", ["srl", "chronosrl", "sac"])
def test_the_bytes_of_an_iterations_pairs_are_near_those_that_xla_plans(critic: str):
    """Fields that the critic asks for are counted exactly; the tables behind hit times and occupancy within a third."""
    config = Config(env="ant_u_maze", method="crl", critic=critic, num_envs=64, batch_size=64).resolve(1000)
    spec = EnvSpec("ant_u_maze", 29, 2, 8, (0, 1), 0.5, 1000)
    agent = make_agent(config, spec)
    shapes: Any = [jax.ShapeDtypeStruct((1000, 64, size), jnp.float32) for size in (29, 8, 2)]
    flags: Any = [jax.ShapeDtypeStruct((1000, 64), kind) for kind in (jnp.int32, bool)]

    def relabelled(windows: Transition, key: Array) -> Batch:
        return relabel(windows, spec, 0.99, key, needs(agent), hindsight_of(agent.critic))

    planned = jax.jit(relabelled).lower(Transition(*shapes, *flags), jax.random.key(0)).compile().memory_analysis()
    assert planned is not None
    windows, order_and_noise = 1000 * 64 * (29 + 8 + 2 + 1) * 4, 1000 * 64 * (1 + 8) * 4
    counted = memory_parts(config, spec)["one iteration's pairs"] - windows - order_and_noise
    tables = counted - 1000 / 999 * planned.output_size_in_bytes
    assert tables == pytest.approx(planned.temp_size_in_bytes, abs=0.33 * counted)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [16, 64])
def test_a_deep_updates_bytes_are_near_those_that_xla_plans(depth: int):
    config = Config(env="ant_u_maze", method="crl", network="residual", depth=depth, batch_size=512).resolve(1000)
    spec = EnvSpec("ant_u_maze", 29, 2, 8, (0, 1), 0.5, 1000)
    learner = Learner(config, spec, make_agent(config, spec))
    state = jax.eval_shape(learner.init, jax.random.key(0))
    shapes: Any = [jax.ShapeDtypeStruct((512, size), jnp.float32) for size in (29, 8, 2, 2)]
    batch = Batch(*shapes)
    program = jax.jit(learner.step).lower(state, batch, batch.action).compile()
    planned = program.memory_analysis()
    assert planned is not None
    assert memory_parts(config, spec)["one update"] == pytest.approx(planned.temp_size_in_bytes, rel=0.2)


@pytest.mark.parametrize(("backend", "devices"), [("cpu", 1), ("gpu", 1), ("gpu", 4)])
def test_a_run_fits_with_its_checkpoints_copy_on_a_cpu_and_its_share_of_the_replay_on_each_gpu(
    backend: str, devices: int, monkeypatch
):
    config = tiny_config().resolve(250)
    parts = memory_parts(config, make_env(config.env).spec)
    copied = parts["replay"] + parts["learner and its optimizer"] + parts["the pool"]
    elsewhere = (parts["replay"] + parts["one unroll"]) * (devices - 1) // devices
    needed = sum(parts.values()) + (copied if backend == "cpu" else -elsewhere)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr("dcp.machine.devices.count_devices", lambda *_: devices)
    monkeypatch.setattr("dcp.machine.devices.shortage", lambda count: None)
    for there, told in ((needed, 0), (needed - 1, 1)):
        monkeypatch.setattr("dcp.machine.checks.available_memory", lambda there=there: there)
        problems = violations(config)
        assert len(problems) == told and all("GB are available: lower" in problem for problem in problems)


def test_seeds_in_one_program_are_counted_with_their_checkpoints_copies(monkeypatch):
    config = tiny_config().resolve(250)
    parts = memory_parts(config, make_env(config.env).spec)
    needed = 3 * (sum(parts.values()) + parts["replay"] + parts["learner and its optimizer"] + parts["the pool"])
    monkeypatch.setattr("dcp.runs.seeds.available_memory", lambda: needed)
    require_memory(config, 3)
    monkeypatch.setattr("dcp.runs.seeds.available_memory", lambda: needed - 1)
    with pytest.raises(UserError, match="3 seeds as one program need"):
        require_memory(config, 3)

"""Critic and actor on two threads: the very updates of `Learner.step`, and no thread that anybody waits for in vain."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dcp import side_by_side
from dcp.algorithm import make_algorithm
from dcp.config import Config
from dcp.envs.registry import make_env
from dcp.learner import Learner
from dcp.methods.table import make_agent, needs
from dcp.programs import Programs
from dcp.runs.training import train
from dcp.side_by_side import LENGTH, SideBySide, spans
from dcp.types import Batch
from tests.runs.same_run import assert_same_run
from tests.runs.test_resume import resume, stopped
from tests.tiny import tiny_config

ENV = make_env("point_u_maze_inertia")  # S 4, G 2, A 2
UPDATES, SIZE = 3 * LENGTH + 3, 12


def make_learner(**settings) -> Learner:
    config = Config(**{"method": "dcp", "width": 16, "repr_dim": 6, **settings})
    return Learner(config, ENV.spec, make_agent(config, ENV.spec))


def pairs_and_steps(learner: Learner, resting: int = 0):
    random = np.random.default_rng(0)

    def draw(*shape: int) -> jax.Array:
        return jnp.array(random.normal(size=shape), jnp.float32)

    pairs = Batch(draw(100, 4), jnp.tanh(draw(100, 2)), draw(100, 2), draw(100, 2))
    wanted, bins = needs(learner.agent), len(getattr(learner.agent.critic, "bins", ())) - 1
    further = {
        "next_state": lambda: draw(100, 4),
        "goal_sequence": lambda: pairs.future_goal,
        "hit_time": lambda: jnp.array(random.integers(0, 9, 100)),
        "occupancy": lambda: jnp.array(random.random((100, bins)), jnp.float32),
        "occupancy_seen": lambda: draw(100, bins) > 0.0,
        **{name: lambda: draw(100) > 0.0 for name in ("has_next", "hit", "falls")},
    }
    pairs = pairs._replace(**{name: make() for name, make in further.items() if name in wanted})
    order = jnp.array(random.integers(0, 100, (UPDATES, SIZE)))
    states = draw(UPDATES, resting, 4) if resting else None
    return pairs, (order, draw(UPDATES, SIZE, 2), jax.random.split(jax.random.key(0), UPDATES), states)


def one_program(learner: Learner, state, pairs, steps):
    algorithm = make_algorithm(tiny_config())
    object.__setattr__(algorithm, "learner", learner)  # `_update` reads its learner and its spec alone
    object.__setattr__(algorithm, "env", ENV)
    return jax.jit(algorithm._updates)(state, pairs, steps)


OF_TMD = {"repr_dim": 8, "component_settings": {"critic.quasimetric": "iqe", "critic.components": 2}}
OF_CHRONOSRL = {"component_settings": {"critic.horizon": 9}}


@pytest.mark.parametrize(
    ("method", "resting", "settings"),
    [
        ("dcp", 0, {}),
        ("crl", 2, {}),
        pytest.param("tmd", 0, OF_TMD, marks=pytest.mark.slow),
        pytest.param("chronosrl", 2, OF_CHRONOSRL, marks=pytest.mark.slow),
    ],
)
def test_two_threads_take_the_updates_of_one_program(method: str, resting: int, settings: dict):
    learner = make_learner(method=method, **settings)
    state, (pairs, steps) = learner.init(jax.random.key(0)), pairs_and_steps(learner, resting)
    sides = SideBySide(learner)
    found = sides.updates(state, pairs, steps)
    wanted = one_program(learner, state, pairs, steps)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
    moved = jax.tree.map(lambda a, b: float(jnp.max(jnp.abs(a - b))), found[0].params, state.params)
    assert min(jax.tree.leaves(moved)) > 0.0
    again = sides.updates(state, pairs, steps)  # the state was copied, and nothing depends on the threads' pace
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(found), strict=True))


@pytest.mark.parametrize("failing", ["_critic", "_actor"])
def test_a_fault_on_either_thread_reaches_the_caller(failing: str, monkeypatch):
    learner = make_learner()
    state, (pairs, steps) = learner.init(jax.random.key(0)), pairs_and_steps(learner)
    sides, program = SideBySide(learner), Failing()
    monkeypatch.setattr(sides, failing, program)
    with pytest.raises(RuntimeError, match="no more"):
        sides.updates(state, pairs, steps)
    assert program.calls == 1


class Failing:
    calls = 0

    def compiled_for(self, *arguments):
        return self.run

    def run(self, *arguments):
        self.calls += 1
        raise RuntimeError("no more")


@pytest.mark.parametrize(
    ("settings", "cores", "backend", "pays"),
    [
        ({"width": 256, "batch_size": 256}, 2, "cpu", True),
        ({"width": 256, "batch_size": 256}, 1, "cpu", False),
        ({"width": 256, "batch_size": 256}, 2, "gpu", False),
        ({"width": 64, "batch_size": 128}, 2, "cpu", False),  # too little work
        ({"width": 256, "batch_size": 256, "critic_learning_rate": 1e-3}, 2, "cpu", False),
        ({"width": 256, "batch_size": 256, "method": "crl", "critic": "td3"}, 2, "cpu", False),  # asks the actor
        ({"width": 512, "batch_size": 512, "method": "crl", "critic": "gcbc"}, 2, "cpu", False),  # has no critic
    ],
)
def test_it_is_done_where_it_pays_and_the_critic_needs_no_actor(settings, cores, backend, pays, monkeypatch):
    monkeypatch.setattr(side_by_side, "cores", lambda: cores)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert side_by_side.pays(make_learner(**settings)) is pays


@pytest.mark.parametrize("number", [1, 7, 8, 9, 22, 1_998])
@pytest.mark.parametrize("length", [1, 8])
def test_hand_overs_take_every_update_once_in_order_and_fit_into_a_buffer(number: int, length: int):
    found = spans(number, length)
    assert [update for start, stop in found for update in range(start, stop)] == list(range(number))
    assert max(stop - start for start, stop in found) <= length


def test_nobody_waits_long_at_either_end():
    sizes = [int(stop - start) for start, stop in spans(1_998, 8)]
    assert sizes[:4] == [1, 2, 4, 8] and sizes[-3:] == [4, 2, 1]


def test_training_takes_it_up(monkeypatch):
    """A pass of the tiny run by two threads is the pass of its one program."""
    monkeypatch.setattr(side_by_side, "LEAST_WORK", 0)
    monkeypatch.setattr(side_by_side, "cores", lambda: 2)
    programs = Programs(make_algorithm(tiny_config(discount=0.97)), donate=False)
    run = programs.init()
    for _ in range(programs.algorithm.config.num_prefill_unrolls):
        run = programs.prefill(run)
    keys = jax.random.split(jax.random.key(0), 4)
    windows = programs.windows(run.replay, keys[0])
    assert programs.jitted.side_by_side is not None
    found, wanted = (learn(run.learner, windows, *keys[1:]) for learn in (programs.learn, programs.jitted.learn))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_run_by_two_threads_resumes_to_the_same_bits(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(side_by_side, "LEAST_WORK", 0)
    monkeypatch.setattr(side_by_side, "cores", lambda: 2)
    taken = []
    updates = SideBySide.updates
    monkeypatch.setattr(SideBySide, "updates", lambda *given: taken.append(1) or updates(*given))
    config = tiny_config(num_evals=2, discount=0.96)
    whole = train(config, runs_dir=tmp_path / "whole", display="none").folder
    iterations = len(taken)
    folder = stopped(config, tmp_path / "stopped", 1)
    resume(folder, display="none")
    assert whole is not None
    assert_same_run(folder, whole)
    assert iterations > 1 and len(taken) >= 2 * iterations

"""The page of `dcp explore` as a reader has it: opened from disk in a headless Chromium, dragged and released."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dcp.actor import init_actor
from dcp.cli.main import main
from dcp.critics.contrastive import Contrastive
from dcp.critics.quasimetric import Quasimetric
from dcp.critics.survival import ChronoSRL
from dcp.envs.mazes import PointMaze, goals_at
from dcp.envs.registry import make_env
from dcp.interfaces import Problem
from dcp.lab.episodes import Episode
from dcp.lab.paths import TruePaths
from dcp.lab.psi_landscape import psi_distances
from dcp.lab.render.explore_page import Panel, save_explore_page
from dcp.lab.statistics import spearman
from dcp.lab.targets import open_target
from dcp.methods.conditions import Direction
from dcp.networks import MLP
from dcp.policies.policy import DeployedPolicy
from dcp.policies.policy_file import load_policy
from dcp.residual_network import Residual
from tests.support.browser import CHROMIUM, Browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
SETTLED = "!dcpExplore.waiting && !dcpExplore.stale"
STILL = "#step=0"


@pytest.fixture(scope="module")
def u_maze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("explore"), "zoo/point_u_maze/dcp", "zoo/point_u_maze/crl")


def made(folder: Path, *runs: str) -> Path:
    out = folder / "page.html"
    assert main(["explore", *runs, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def page(chromium: Browser, u_maze: Path) -> Iterator[Browser]:
    """Freshly opened, at rest. Whatever a test does, the console stays silent and nothing is fetched."""
    chromium.resize(1280, 900)
    chromium.prefer("light")
    chromium.open(u_maze, STILL)
    chromium.wait(SETTLED)
    yield chromium
    assert chromium.complaints == []
    assert [url for url in chromium.requests if not url.startswith(u_maze.resolve().as_uri())] == []


def at(page: Browser, place: tuple[float, float], panel: int = 0) -> tuple[float, float]:
    """Where a place of the plane is in the window."""
    x, y = place
    return tuple(
        page.run(
            f"(() => {{ const {{canvas, plan}} = dcpExplore.panels[{panel}], box = canvas.getBoundingClientRect();"
            f"const ratio = canvas.width / box.width; return [box.left + plan.u({y}) / ratio,"
            f" box.top + plan.v({x}) / ratio]; }})()"
        )
    )


def test_dragging_the_goal_turns_the_field_and_the_released_point_arrives(page: Browser):
    policy, goal = load_policy("zoo/point_u_maze/dcp"), np.array([3.0, 3.0])
    before = page.run("[...dcpExplore.panels[0].distances]")
    page.drag(at(page, (3.0, 1.0)), at(page, (3.0, 3.0)))
    page.wait(SETTLED)
    shown = page.run("dcpExplore.state.goal")
    np.testing.assert_allclose(shown, goal, atol=0.02)  # a pixel is 0.007
    values, points = page.run(
        "[[...dcpExplore.panels[0].distances], Array.from(dcpExplore.grid.free, (k) => dcpExplore.grid.points[k])]"
    )
    assert np.abs(np.subtract(values, before)).mean() > 0.5
    np.testing.assert_allclose(values, psi_distances(policy, np.array(points), np.array(shown)), rtol=1e-4, atol=1e-4)
    page.click("#run")
    page.wait("dcpExplore.panels[0].walk.arrived !== null")
    page.wait("document.querySelector('.panel .arrived')?.textContent.startsWith('arrived at step')")
    reached = page.run("dcpExplore.panels[0].walk.achieved")
    assert np.hypot(*np.subtract(reached, shown)) < 0.125


def test_the_rank_correlation_and_the_true_path_are_pythons(page: Browser):
    """Spearman's over the page's own free grid points, with exact paths."""
    policy, maze, goal = load_policy("zoo/point_u_maze/dcp"), make_env("point_u_maze").spec.maze, np.array([3.0, 1.0])
    points = np.array(page.run("Array.from(dcpExplore.grid.free, (k) => dcpExplore.grid.points[k])"))
    truth = TruePaths(maze).lengths(points, np.tile(goal, (len(points), 1)))
    np.testing.assert_allclose(page.run("[...dcpExplore.truth.lengths]"), truth, atol=1e-4)
    wanted = spearman(psi_distances(policy, points, goal), truth)
    assert abs(page.run("dcpExplore.panels[0].rank") - wanted) < 1e-4
    assert f"rank correlation {wanted:.2f}" in page.run("document.querySelector('.facts').textContent")


def test_a_goal_in_a_wall_goes_to_the_nearest_free_place(page: Browser, u_maze: Path):
    """Dragged, moved by key or by a link: the true path and its rank exist wherever the goal is."""
    page.drag(at(page, (3.0, 1.0)), at(page, (2.3, 1.2)))  # into the wall from 1.5 to 2.5
    page.wait(SETTLED)
    np.testing.assert_allclose(page.run("dcpExplore.state.goal"), (2.51, 1.2), atol=0.02)
    require_a_rank(page)
    page.press("ArrowUp")
    page.wait(SETTLED)
    assert page.run("dcpExplore.state.goal[0]") == pytest.approx(2.51)
    page.drag(at(page, (1.0, 1.0)), at(page, (1.9, 2.0)))  # the start, where the point has to fit
    assert page.run("dcpExplore.state.places[0][0]") == pytest.approx(1.5 - 0.08)
    page.open(u_maze, "#goal=1.9,1.9&start=2.2,1&step=0")
    page.wait(SETTLED)
    goal, start = page.run("[dcpExplore.state.goal, dcpExplore.state.places[0]]")
    np.testing.assert_allclose([goal, start], [(1.49, 1.9), (2.58, 1.0)], atol=1e-6)
    require_a_rank(page)
    assert page.run("dcpExplore.truth.lengths.every(Number.isFinite)")


def require_a_rank(page: Browser) -> None:
    told = page.run("document.querySelector('.facts').textContent")
    assert re.match(r"rank correlation -?\d\.\d\d", told), told


def test_a_link_shows_the_same_view_again(page: Browser, u_maze: Path):
    page.drag(at(page, (3.0, 1.0)), at(page, (2.0, 3.0)))
    for key in ("f", "c", "b"):
        page.press(key)
    page.run("dcpExplore.goTo(120), dcpExplore.remember()")
    fragment = page.run("location.hash")
    wanted = page.run("[dcpExplore.state.goal, dcpExplore.state.field, dcpExplore.panels.map((p) => p.walk.state)]")
    assert wanted[1] == "path"
    page.open(u_maze, fragment)
    page.wait(SETTLED)
    again = page.run("[dcpExplore.state.goal, dcpExplore.state.field, dcpExplore.panels.map((p) => p.walk.state)]")
    np.testing.assert_allclose(again[0], wanted[0], atol=1e-3)
    assert again[1] == "path" and page.run("dcpExplore.state.bursts") and not page.run("dcpExplore.state.contours")
    np.testing.assert_allclose(again[2], wanted[2], atol=0.01)
    page.open(u_maze, "#goal=99,oops&start=1&field=nonsense&step=x")  # a damaged link is passed over
    assert page.run("dcpExplore.state.goal") == [3.0, 1.0]


def test_a_pushed_point_recovers(page: Browser):
    page.run("dcpExplore.goTo(10), dcpExplore.advance(0)")
    place = page.run("dcpExplore.panels[0].walk.achieved")
    x, y = at(page, place)
    page.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", clickCount=1)
    far = at(page, (1.0, 1.0))
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=far[0], y=far[1], button="left", buttons=1)
    page.wait(f"dcpExplore.panels[0].walk.achieved[1] < {place[1]} - 0.3")  # back towards the start, against its will
    page.call("Input.dispatchMouseEvent", type="mouseReleased", x=far[0], y=far[1], button="left", clickCount=1)
    page.wait("dcpExplore.panels[0].walk.arrived !== null")


def test_keys_move_the_goal_and_a_phone_has_no_sideways_scrolling(page: Browser):
    page.press("ArrowRight")
    assert page.run("dcpExplore.state.goal[1]") == pytest.approx(1.125)
    page.press("t")
    assert page.run("document.documentElement.dataset.theme") == "dark"
    page.resize(390, 844, 2.0)
    page.wait("document.documentElement.scrollWidth <= 390")
    page.wait("dcpExplore.panels.every((p) => p.canvas.clientWidth > 300)")


def untrained(path: Path, env: str, critic=None, network=None, seed: int = 0) -> Path:
    """Write a policy as it is before training: random weights are enough to compare numbers."""
    spec, network, critic = make_env(env).spec, network or MLP(32, 2), critic or Contrastive(repr_dim=16)
    keys, condition = jax.random.split(jax.random.key(seed), 3), Direction()
    actor = init_actor(network, keys[0], spec, condition.size(spec, critic.repr_dim))
    params = critic.init(keys[1:], Problem(spec, network)).params
    return DeployedPolicy(spec, network, critic, condition, actor, params).save(path, method="dcp")


@pytest.mark.slow
@pytest.mark.parametrize(
    "critic, network",
    [
        (Quasimetric(repr_dim=16, quasimetric="mrn", components=4), None),
        (Quasimetric(repr_dim=16, quasimetric="iqe", components=4), None),
        (ChronoSRL(repr_dim=16).for_task(make_env("point_u_maze").spec, 250), None),
        (None, MLP(32, 4, "relu", layer_norm=True, residual_every=2)),
        (None, Residual(32, 8)),
    ],
)
def test_the_page_knows_our_other_critics_and_networks(chromium: Browser, critic, network, tmp_path: Path):
    path = untrained(tmp_path / "policy.safetensors", "point_u_maze", critic, network)
    chromium.open(made(tmp_path, str(path)), STILL)
    # Before training psi hardly tells places apart, so that the direction magnifies float32's rounding.
    require_same_numbers(chromium, make_env("point_u_maze"), load_policy(path), actions_within=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("env", ["point_soccer", "point_soccer_slick", "point_push", "point_u_maze_inertia"])
def test_the_page_steps_every_task_of_a_point_as_python_does(chromium: Browser, env: str, tmp_path: Path):
    """Walks of 200 steps with actions drawn at random, from the environment's own starts."""
    chromium.open(made(tmp_path, str(untrained(tmp_path / "policy.safetensors", env))), STILL)
    task, steps, count = make_env(env), 200, 20
    first = jax.vmap(task.reset)(jax.random.split(jax.random.key(5), count))
    actions = jax.random.uniform(jax.random.key(6), (count, steps, 2), minval=-1.5, maxval=1.5)

    def follow(start, moves):
        return jax.lax.scan(lambda now, move: (task.step(now, move),) * 2, start, moves)[1].obs[
            :, : task.spec.state_size
        ]

    ours = np.asarray(jax.jit(jax.vmap(follow))(first, actions))
    starts = np.asarray(first.obs)[:, : task.spec.state_size]
    theirs = chromium.run(
        f"(() => {{ const [starts, actions] = {json.dumps([starts.tolist(), np.asarray(actions).tolist()])};"
        "return starts.map((state, i) => actions[i].map((move) => (state = dcpExplore.task.step(state, move)))); })()"
    )
    np.testing.assert_allclose(theirs, ours, atol=1e-4)


@pytest.mark.parametrize(
    "env",
    [
        "ant_soccer",
        *(pytest.param(env, marks=pytest.mark.slow) for env in ("ant_push", "humanoid_u_maze", "pusher_easy")),
    ],
)
def test_recorded_bodies_are_drawn_over_the_field(chromium: Browser, env: str, tmp_path: Path):
    """A made-up episode: nothing here steps physics. Every body lies where its pose says, seen from above."""
    task, target = make_env(env), open_target(untrained(tmp_path / "policy.safetensors", env))
    size, steps = task.spec.goal_size, 12
    q = np.tile(np.asarray(task.draw(jax.random.key(0))[0], np.float64), (steps + 1, 1))
    achieved = np.linspace(np.full(size, 4.0), np.full(size, 6.0), steps + 1)
    episode = Episode(achieved, np.full(size, 5.0), q, 8, None, np.tile(np.full(size, 5.5), (steps + 1, 1)))
    save_explore_page(tmp_path / "page.html", task, [Panel("dcp", target, [episode], None)])
    chromium.open(tmp_path / "page.html", "#step=8&pool=1")
    chromium.wait(SETTLED)
    assert chromium.run("document.querySelector('.facts').textContent").endswith("arrived at step 8")
    assert chromium.run("dcpExplore.panels[0].moment().distance") == pytest.approx(np.sqrt(size) / 3, abs=1e-3)
    chromium.open(tmp_path / "page.html", f"#step=8&goal={','.join(['5.2'] * size)}")  # dragged, then sent as a link
    assert chromium.run("dcpExplore.state.goal.slice(0, 2)") == [5.2, 5.2]
    assert chromium.complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("env", ["point_u_maze", "point_big_maze", "point_hardest_maze"])
@pytest.mark.parametrize("method", ["dcp", "crl"])
def test_the_page_computes_what_python_does(chromium: Browser, env: str, method: str, tmp_path: Path):
    """1,000 actions and 1,000 distances to 1e-4, and walks of 200 steps."""
    chromium.open(made(tmp_path, f"zoo/{env}/{method}"), STILL)
    task, policy = make_env(env), load_policy(f"zoo/{env}/{method}")
    require_same_numbers(chromium, task, policy)
    apart = walk_differences(chromium, task, policy, count=20)
    assert np.quantile(apart, 0.9) < 1e-3 and apart.max() < 0.05


def require_same_numbers(chromium: Browser, task, policy, actions_within: float = 1e-4) -> None:
    """1,000 actions and 1,000 distances."""
    states, goals, places = random_states(task, 1000, 7), random_goals(task, 1000, 8), random_goals(task, 1000, 9)
    inputs = json.dumps([states.tolist(), goals.tolist(), places.tolist()])
    actions, distances = chromium.run(
        f"(() => {{ const [states, goals, places] = {inputs}, {{policy}} = dcpExplore.panels[0];"
        "return [states.map((s, i) => policy.action(s, goals[i])),"
        " places.map((p, i) => policy.distance(p, goals[i]))]; })()"
    )
    np.testing.assert_allclose(actions, policy(states, goals), atol=actions_within)
    psi = policy.representation
    np.testing.assert_allclose(distances, psi.distance(psi.encode_goal(places), psi.encode_goal(goals)), atol=1e-4)


def walk_differences(chromium: Browser, task, policy, count: int, steps: int = 200) -> np.ndarray:
    """[count]: the largest difference of a state along each walk, until it arrives"""
    starts, goals = random_states(task, count, 1), random_goals(task, count, 2)
    ours = walks(task, policy, starts, goals, steps)  # [count, T + 1, S]
    theirs = chromium.run(
        f"(() => {{ const [starts, goals] = {json.dumps([ours[:, 0].tolist(), goals.tolist()])};"
        "const {policy} = dcpExplore.panels[0], {task} = dcpExplore; return starts.map((state, i) => {"
        f"const states = [state]; for (let t = 0; t < {steps}; t++)"
        " states.push(state = task.step(state, policy.action(state, goals[i]))); return states; }); })()"
    )
    near = np.linalg.norm(task.spec.achieved(ours) - goals[:, None], axis=-1) < task.spec.threshold
    on_the_way = np.cumsum(near, axis=1) == 0  # at the goal the direction is a rounding error's, and the point jitters
    return np.where(on_the_way, np.abs(ours - np.array(theirs)).max(axis=2), 0.0).max(axis=1)


def random_goals(env, count: int, seed: int) -> np.ndarray:
    """Return [count, G]: places in the maze's free cells, or around the first goal."""
    random, spec = np.random.default_rng(seed), env.spec
    if spec.maze is None:
        return random.normal(size=(count, spec.goal_size)).astype(np.float32)
    cells = spec.maze.cells("rg.")
    plane = cells[random.integers(len(cells), size=count)] + random.uniform(-0.4, 0.4, (count, 2)) * spec.maze.scale
    return goals_at(plane, np.ones(spec.goal_size))


def random_states(env, count: int, seed: int) -> np.ndarray:
    """Return [count, S]: free places, and small numbers for everything else in a state."""
    random, spec = np.random.default_rng(seed + 1), env.spec
    states = random.normal(scale=0.3, size=(count, spec.state_size)).astype(np.float32)
    states[:, list(spec.goal_dims)] = random_goals(env, count, seed + 2)
    return states


def walks(env, policy, states: np.ndarray, goals: np.ndarray, steps: int) -> np.ndarray:
    """Step a point task with the policy, from states [N, S] to goals [N, G]: [N, steps + 1, S]."""
    spec = env.spec

    def one(now, _):
        body, aim = spec.split(now.obs)
        after = env.step(now, policy.act((), body, aim)[1])
        return after, spec.split(after.obs)[0]

    def walk(state, goal):
        if isinstance(env, PointMaze):
            velocity = jnp.concatenate([state[2:4] if env.inertia else jnp.zeros(2), jnp.zeros(2)])
            first = env.reset_to(jnp.concatenate([state[:2], goal]), velocity)
        else:
            first = env.reset_to(jnp.concatenate([state[:4], goal]))
        after = jax.lax.scan(one, first, length=steps)[1]
        return jnp.concatenate([spec.split(first.obs)[0][None], after])

    run = jax.jit(jax.vmap(walk))
    return np.asarray(run(jnp.asarray(states, jnp.float32), jnp.asarray(goals, jnp.float32)))

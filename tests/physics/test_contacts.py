"""Contacts found on the grid against Brax's own search over every wall: the same, for what penetrates."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from brax import contact
from brax.base import Transform

from dcp.envs.registry import make_env
from dcp.physics.contacts import ContactFinder, colliding_pairs, wall_codes
from dcp.types import MazeLayout
from tests.support.brax_models import brax_system

POSES = 3000


@pytest.fixture(autouse=True)
def float64():
    """So that what differs is the maths, not rounding: at 18 m a normal over 8 cm is known to 3e-5 in float32."""
    with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
        yield


def poses(env, num_links: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Links anywhere near a wall's face, edge, corner or top, some below the floor: pos [P, L, 3], rot [P, L, 4]."""
    rng = np.random.default_rng(seed)
    scale = env.layout.scale
    corner = rng.integers(0, 5, (POSES, num_links, 2)) + 0.5  # where four cells meet
    pos = np.empty((POSES, num_links, 3))
    pos[..., :2] = scale * corner + rng.choice([-1, 1], (POSES, num_links, 2)) * rng.choice(
        [0.01, 0.3, scale / 4, scale / 2], (POSES, num_links, 2)
    ) * rng.uniform(0.5, 1.5, (POSES, num_links, 2))
    pos[..., 2] = rng.choice([0.0, 0.25 * scale, 0.5 * scale], (POSES, num_links)) + rng.normal(
        0, 0.1, (POSES, num_links)
    )
    rot = rng.normal(size=(POSES, num_links, 4))
    return pos, rot / np.linalg.norm(rot, axis=-1, keepdims=True)


def by_brax(sys, pos, rot):
    """-> links [K, 2], dist [P, K], pos [P, K, 3], normal [P, K, 3]"""

    def one(pos, rot):
        found = contact.get(sys, Transform(pos, rot))
        return jnp.stack(found.link_idx, -1), found.dist, found.pos, found.frame[:, 0]

    links, *rest = jax.jit(jax.vmap(one))(pos, rot)
    return np.asarray(links[0]), *map(np.asarray, rest)


def by_grid(finder: ContactFinder, pos, rot):
    """The same from ours, the world as link -1."""
    frames = jnp.moveaxis(jnp.concatenate([pos, rot], axis=-1), 0, -1).transpose(1, 0, 2)  # [7, L, P]
    links = []

    def find(frames):
        groups = finder(frames)
        for group in groups:  # known while the program is built
            second = np.full_like(group.first, -1) if group.second is None else group.second
            links.append(np.stack([group.first, second], -1))
        return [group.touch for group in groups]

    touches = jax.jit(find)(frames)
    dist = np.concatenate([np.asarray(t.dist).T for t in touches], axis=1)
    at = np.concatenate([np.stack([np.asarray(c).T for c in t.pos], -1) for t in touches], axis=1)
    normal = np.concatenate([np.stack([np.asarray(c).T for c in t.normal], -1) for t in touches], axis=1)
    return np.concatenate(links), dist, at, normal


def penetrating(links, dist, pos, normal, pose: int):
    """Rows (first link, second link, dist, pos, normal) with the world second, in one order."""
    deep = dist[pose] < -1e-6
    rows = np.concatenate([links[deep], dist[pose][deep, None], pos[pose][deep], normal[pose][deep]], axis=1)
    turned = rows[:, 0] == -1
    rows[turned, :2] = rows[turned, 1::-1]
    rows[turned, 6:] *= -1
    return rows


def same(ours: np.ndarray, theirs: np.ndarray, atol: float) -> bool:
    """Whether each row of one is, up to its place, a row of the other."""
    if len(ours) != len(theirs):
        return False
    gap = np.abs(ours[:, None] - theirs[None]).max(-1)  # [K, K]
    return bool((gap.min(axis=0) < atol).all() and (gap.min(axis=1) < atol).all()) if len(ours) else True


@pytest.mark.parametrize("name", ["ant_u_maze", pytest.param("humanoid_u_maze", marks=pytest.mark.slow)])
def test_penetrating_contacts_near_walls_corners_and_floor_are_those_of_the_full_search(name: str):
    env = make_env(name)
    model = env.model().compile()
    sys, finder = brax_system(model), ContactFinder(model, env.layout)
    pos, rot = poses(env, sys.num_links(), seed=0)
    brax, grid = by_brax(sys, pos, rot), by_grid(finder, pos, rot)
    total, off = 0, []
    for pose in range(POSES):
        theirs, ours = penetrating(*brax, pose), penetrating(*grid, pose)
        total += len(theirs)
        if not same(ours, theirs, 1e-5):
            off.append(pose)
    assert total > 10 * POSES / 10  # contact is the rule here, not the exception
    assert not off, f"{len(off)} of {POSES} poses differ, the first: {off[0]}"


def test_the_ant_collides_with_the_pairs_that_muj_oco_counts():
    """26 contacts of the ant with itself, 4 feet on the floor; 9 geoms with each of the 18 walls of the U."""
    model = make_env("ant_u_maze").model().compile()
    walls = sum("wall" in model.geom(b).name for _, b in colliding_pairs(model))
    others = [(a, b) for a, b in colliding_pairs(model) if "wall" not in model.geom(b).name]
    floor = sum(model.geom(a).name == "floor" for a, _ in others)
    assert (walls, floor, len(others) - floor) == (9 * 18, 4, 26)


def test_a_geom_that_reaches_beyond_its_neighbouring_cells_is_refused():
    env = make_env("ant_u_maze")
    model = env.model()
    model.geom("torso_geom").size = [1.5, 0, 0]
    with pytest.raises(ValueError, match="quarter of a cell"):
        ContactFinder(model.compile(), env.layout)


def test_a_shape_without_contact_maths_is_refused():
    env = make_env("ant_u_maze")
    model = env.model()
    model.geom("torso_geom").type = mujoco.mjtGeom.mjGEOM_CYLINDER
    model.geom("torso_geom").size = [0.2, 0.2, 0]
    with pytest.raises(ValueError, match="spheres and capsules"):
        ContactFinder(model.compile(), env.layout)


def test_wall_codes_have_a_bit_for_each_of_four_neighbours():
    codes = wall_codes(MazeLayout(("##", "#."), 4.0))
    np.testing.assert_array_equal(codes[1:4, 1:4], [[8, 12, 4], [10, 7, 1], [2, 1, 0]])
    assert not codes[[0, -1]].any() and not codes[:, [0, -1]].any()  # whoever is outside touches nothing

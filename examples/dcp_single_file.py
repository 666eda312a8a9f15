"""DCP and CRL in one file: a point learns to find its way through a U maze, in a minute or two on two cores.

    python examples/dcp_single_file.py                 DCP, direction-conditioned policies
    python examples/dcp_single_file.py --method crl    CRL, contrastive RL, its baseline

Read it from top to bottom. It follows the paper "Direction-Conditioned Policies via Compositional Subgoal Scoring" and
cites its equations and Algorithm 1. It imports nothing of the library; `tests/examples/test_dcp_single_file.py` holds
its environment, pool, hindsight goals, updates and whole iterations to the library's, with the demo preset's settings.

Contrastive RL trains two encoders so that psi_sa(s, a) is near psi_g(g) if taking a in s tends to lead to g. CRL shows
the actor the goal g itself. DCP shows it the direction and the distance from psi_g(s) to psi_g(z), where z is a visited
state that a score picks from a small pool. After training z is replaced by g: no pool, no planner.

Letters in shapes: N environments, T time, B batch, P pool, C candidates, D representation. In this maze the state s is
the point's position [2], and the goal that it has achieved ("s[goal dims]" in the paper) is that position, too.
"""

import argparse
import time
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

Params = dict[str, Any]  # dictionaries of arrays
Metrics = dict[str, Array]


@dataclass(frozen=True)
class Settings:
    method: str = "dcp"  # or crl
    seed: int = 0
    steps: int = 3_000_000  # of all environments together; in the paper 50 million and more
    num_envs: int = 256  # N; 512 in the paper
    unroll_length: int = 124  # steps between two rounds of updates; 62 in the paper
    window: int = 250  # T: rows that an iteration draws from each environment's replay
    replay_rows: int = 10_000
    batch_size: int = 128  # B; 256 in the paper
    discount: float = 0.99
    learning_rate: float = 1e-3  # 3e-4 in the paper
    width: int = 64  # of two hidden layers with LayerNorm; in the paper 256, without LayerNorm
    repr_dim: int = 64  # D
    logsumexp_penalty: float = 0.1
    target_entropy: float = -1.0  # minus half of the action's size
    pool_size: int = 512  # P
    num_candidates: int = 32  # C
    subgoal_period: int = 25  # steps between two choices of z
    final_goal_share: float = 0.5  # of the environments, which are asked for g instead of z; 0 in the paper
    num_evals: int = 10
    eval_episodes: int = 256


# --- 1. The environment: a point without inertia. These functions are for one point; jax.vmap makes them for N.
# Walls, starts (r) and goals (g); the cell in row i, column j has its centre at (i, j). Evaluation asks for far goals.
MAZE = np.array([list(row) for row in ("#####", "#rgg#", "###g#", "#ggg#", "#####")])
EVALUATION_MAZE = np.array([list(row) for row in ("#####", "#r..#", "###.#", "#ggg#", "#####")])
SPEED, RADIUS, START_NOISE = 0.12, 0.08, 0.12
NEAR = 0.125  # a point this near has reached its goal
EPISODE_LENGTH = 250


def reset(maze: np.ndarray, key: Array) -> tuple[Array, Array]:
    """Draw a start position [2] and a goal [2]."""
    key_start, key_noise, key_goal = jax.random.split(key, 3)
    starts, goals = (jnp.asarray(np.argwhere(maze == kind), jnp.float32) for kind in "rg")  # [K, 2] each
    noise = jax.random.uniform(key_noise, (2,), minval=-START_NOISE, maxval=START_NOISE)
    return jax.random.choice(key_start, starts) + noise, jax.random.choice(key_goal, goals)


def move(position: Array, action: Array) -> Array:
    """Move the point [2] by an action [2]. A wall stops each axis by itself, so that the point slides along it."""
    walls, change = jnp.asarray(MAZE == "#"), SPEED * jnp.clip(action, -1.0, 1.0)
    for axis in (0, 1):
        sign = jnp.sign(change[axis])
        along = position[axis] + change[axis]
        ahead = jnp.floor(along + sign * RADIUS + 0.5).astype(int)  # the row or column that the point's front enters
        sides = position[1 - axis] + 0.999 * RADIUS * jnp.array([-1.0, 1.0])  # [2]: one may slide along a wall
        beside = jnp.floor(sides + 0.5).astype(int)  # [2]: the columns or rows that its two sides lie in
        hits = jnp.any(walls[(ahead, beside) if axis == 0 else (beside, ahead)]) & (sign != 0.0)
        face = ahead - 0.5 * sign
        position = position.at[axis].set(jnp.where(hits, face - sign * RADIUS, along))
    return position


# --- 2. Networks: two hidden layers with LayerNorm and swish. Parameters are dictionaries of arrays.
def init_network(key: Array, in_size: int, width: int, out_size: int) -> Params:
    params: Params = {}
    sizes = {"hidden_0": (in_size, width), "hidden_1": (width, width), "out": (width, out_size)}
    for (name, (rows, columns)), key_layer in zip(sizes.items(), jax.random.split(key, 3), strict=True):
        kernel = jax.random.uniform(key_layer, (rows, columns), minval=-1.0, maxval=1.0) / rows**0.5
        params[name] = {"kernel": kernel, "bias": jnp.zeros(columns)}
    norm = {"scale": jnp.ones(width), "bias": jnp.zeros(width)}
    return {**params, "norm_0": norm, "norm_1": norm}


def network(params: Params, x: Array) -> Array:
    """x [B, in] -> [B, out]"""
    for hidden, norm in (("hidden_0", "norm_0"), ("hidden_1", "norm_1")):
        x = x @ params[hidden]["kernel"] + params[hidden]["bias"]
        x = (x - jnp.mean(x, -1, keepdims=True)) * jax.lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-6)
        x = jax.nn.swish(x * params[norm]["scale"] + params[norm]["bias"])
    return x @ params["out"]["kernel"] + params["out"]["bias"]


# --- 3. The critic. Both methods train the same one, on the same hindsight goals.
class Batch(NamedTuple):
    state: Array  # [B, 2]
    action: Array  # [B, 2]
    commanded: Array  # [B, 2]: what the rollout asked for: g or z
    future: Array  # [B, 2]: the hindsight goal: where the same episode was later


def pairwise_distance(x: Array, y: Array) -> Array:
    """Return |x_i - y_j| for [B, D] and [B, D]: [B, B]. The root is kept away from zero, where it has no gradient."""
    centre = jax.lax.stop_gradient(jnp.mean(y, axis=0, keepdims=True))  # an offset common to all would cost digits
    x, y = x - centre, y - centre
    square = jnp.sum(x**2, axis=-1)[:, None] + jnp.sum(y**2, axis=-1)[None, :] - 2.0 * x @ y.T
    return jnp.sqrt(jnp.maximum(square, 0.0) + 1e-6)


def critic_loss(settings: Settings, params: Params, batch: Batch) -> tuple[Array, Metrics]:
    """Return Algorithm 1's CriticLoss: equation 1 with the negative distance as energy, and column by column.

    The positive pairs lie on the diagonal; the negatives of a goal are the other (s, a) in its column. InfoNCE cannot
    see a drift common to all logits, so the square of their log-sum-exp is penalised, row by row as in JaxGCRL.
    """
    psi_sa = network(params["psi_sa"], jnp.concatenate([batch.state, batch.action], axis=-1))  # [B, D]
    psi_g = network(params["psi_g"], batch.future)  # [B, D]
    logits = -pairwise_distance(psi_sa, psi_g)  # [B, B]: one row per (s, a), one column per goal
    infonce = -jnp.mean(jnp.diag(logits) - jax.nn.logsumexp(logits, axis=0))
    penalty = jnp.mean(jax.nn.logsumexp(logits, axis=1) ** 2)
    accuracy = jnp.mean(jnp.argmax(logits, axis=1) == jnp.arange(logits.shape[0]))
    return infonce + settings.logsumexp_penalty * penalty, {"critic_loss": infonce, "accuracy": accuracy}


# --- 4. The actor. What it sees of its goal is the difference between the methods.
def direction(psi_s: Array, psi_z: Array) -> Array:
    """Return equation 3, the unit vector d and the distance r, as [..., D + 1]. Both are zero where z is s."""
    difference = psi_z - psi_s  # [..., D]
    square = jnp.sum(difference**2, axis=-1, keepdims=True)  # [..., 1]
    apart = square > 0.0
    r = jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)  # the root of zero has no finite gradient
    return jnp.concatenate([difference / jnp.where(apart, r, 1.0), r], axis=-1)


def actor(settings: Settings, params: Params, state: Array, goal: Array) -> tuple[Array, Array]:
    """state [B, 2], goal [B, 2] -> mean and log standard deviation of the action before its tanh, [B, 2] each"""
    condition = goal
    if settings.method == "dcp":
        psi_s, psi_z = network(params["psi_g"], state), network(params["psi_g"], goal)  # [B, D] each
        is_there = jnp.all(state == goal, axis=-1, keepdims=True)  # XLA may round equal inputs differently
        condition = direction(psi_s, jnp.where(is_there, psi_s, psi_z))  # [B, D + 1]
    mean, raw = jnp.split(network(params["actor"], jnp.concatenate([state, condition], axis=-1)), 2, axis=-1)
    return mean, -5.0 + 3.5 * (jnp.tanh(raw) + 1.0)  # the log standard deviation lies within [-5, 2]


def sample_action(mean: Array, log_std: Array, noise: Array) -> tuple[Array, Array]:
    """Squash a Gaussian by tanh: [B, 2] each -> action [B, 2], its log probability [B]"""
    action = jnp.tanh(mean + jnp.exp(log_std) * noise)
    gaussian = -0.5 * noise**2 - log_std - 0.5 * np.log(2.0 * np.pi)
    return action, jnp.sum(gaussian - jnp.log(1.0 - action**2 + 1e-6), axis=-1)


def actor_loss(settings: Settings, params: Params, batch: Batch, noise: Array) -> tuple[Array, Metrics]:
    """Return Algorithm 1's ActorLoss with SAC's entropy, and the loss of the temperature alpha.

    DCP aims at z, which the rollout stored; CRL aims at the hindsight goal. The encoders get no gradient.
    """
    frozen = jax.lax.stop_gradient(params)
    goal = batch.commanded if settings.method == "dcp" else batch.future
    mean, log_std = actor(settings, {**frozen, "actor": params["actor"]}, batch.state, goal)
    action, log_prob = sample_action(mean, log_std, noise)  # [B, 2], [B]
    psi_sa = network(frozen["psi_sa"], jnp.concatenate([batch.state, action], axis=-1))  # [B, D]
    psi_z = network(frozen["psi_g"], goal)  # [B, D]
    energy = -jnp.sqrt(jnp.sum((psi_sa - psi_z) ** 2, axis=-1) + 1e-6)  # [B]
    loss = jnp.mean(jnp.exp(frozen["log_alpha"]) * log_prob - energy)
    entropy = -jnp.mean(jax.lax.stop_gradient(log_prob))
    alpha = jnp.exp(params["log_alpha"])  # the last term raises it while the entropy is below its target
    return loss + alpha * (entropy - settings.target_entropy), {"entropy": entropy, "alpha": alpha}


class Learner(NamedTuple):
    params: Params
    adam: optax.OptState


def update(settings: Settings, learner: Learner, batch: Batch, noise: Array) -> tuple[Learner, Metrics]:
    """Step critic, actor and temperature at once, since no loss gives a gradient to the others' parts. noise [B, 2]"""

    def loss(params: Params) -> tuple[Array, Metrics]:
        of_critic, critic_metrics = critic_loss(settings, params, batch)
        of_actor, actor_metrics = actor_loss(settings, params, batch, noise)
        return of_critic + of_actor, critic_metrics | actor_metrics

    gradients, metrics = jax.grad(loss, has_aux=True)(learner.params)
    changes, adam = optax.adam(settings.learning_rate).update(gradients, learner.adam)
    params: Any = optax.apply_updates(learner.params, changes)
    return Learner(params, adam), metrics


# --- 5. The pool of visited states, from which z is chosen. It exists only in training, and CRL does without it.
class Pool(NamedTuple):
    states: Array  # [P, 2]: recently visited, a ring that all environments share
    head: Array  # []: the next slot to overwrite
    subgoal: Array  # [N, 2]: z, as it was chosen last


class Acting(NamedTuple):
    position: Array  # [N, 2]
    first: Array  # [N, 2]: where each episode begins: as in JaxGCRL, an environment returns to its own first state
    goal: Array  # [N, 2]: g, which an environment keeps
    clock: Array  # []: steps of each environment: episodes have one length, so that they end together
    pool: Pool


def select_subgoal(settings: Settings, params: Params, pool: Array, goal: Array, key: Array) -> Array:
    """Apply Algorithm 1's SelectSubgoal: equation 2 over C of the P states, for each environment. -> z [N, 2]"""
    random_scores = jax.random.uniform(key, (goal.shape[0], settings.pool_size))
    candidates = jax.lax.top_k(random_scores, settings.num_candidates)[1]  # [N, C]: none is drawn twice
    psi_pool, psi_goal = network(params["psi_g"], pool), network(params["psi_g"], goal)  # [P, D], [N, D]
    scores = jnp.einsum("ncd,nd->nc", psi_pool[candidates], psi_goal)  # <psi_g(z), psi_g(g)>
    best = jnp.take_along_axis(candidates, jnp.argmax(scores, axis=-1)[:, None], axis=-1)[:, 0]  # [N]
    return pool[best]


def command(settings: Settings, params: Params, acting: Acting, key: Array) -> tuple[Pool, Array]:
    """Add visited states to the pool, and return what the rollout asks for, [N, 2]: z, or in a share of them g."""
    pool, goal = acting.pool, acting.goal
    key_visit, key_select = jax.random.split(key)
    key_count, key_who = jax.random.split(key_visit)
    # One episode replaces the whole pool: 512 / 250 states enter per step, that is two, and now and then three.
    rate = settings.pool_size / EPISODE_LENGTH
    count = int(rate) + (jax.random.uniform(key_count) < rate - int(rate)).astype(jnp.int32)
    index = jnp.arange(int(rate) + 1)
    who = jax.random.randint(key_who, index.shape, 0, settings.num_envs)
    slots = jnp.where(index < count, (pool.head + index) % settings.pool_size, settings.pool_size)
    states = pool.states.at[slots].set(acting.position[who], mode="drop")  # there is no slot P: that state is dropped
    subgoal = jax.lax.cond(
        acting.clock % settings.subgoal_period == 0,
        lambda: select_subgoal(settings, params, states, goal, key_select),
        lambda: pool.subgoal,
    )
    takes_goal = jnp.arange(settings.num_envs) < round(settings.final_goal_share * settings.num_envs)  # [N]
    pool = Pool(states, (pool.head + count) % settings.pool_size, subgoal)
    return pool, jnp.where(takes_goal[:, None], goal, subgoal)


# --- 6. The replay: a ring of rows, windows of it, and hindsight goals.
class Rows(NamedTuple):
    state: Array  # [T, N, 2]
    action: Array  # [T, N, 2]
    commanded: Array  # [T, N, 2]: Algorithm 1's "z stored in buffer goal slot"
    episode: Array  # [T, N]: the rows of an episode have one number


def sample_windows(settings: Settings, replay: Rows, written: Array, key: Array) -> Rows:
    """Draw T consecutive rows of each environment, the first one uniform over what is stored: [T, N, ...]"""
    stored = jnp.minimum(written, settings.replay_rows)
    start = jax.random.randint(key, (settings.num_envs,), 0, stored - settings.window + 1)  # [N]: from the oldest row
    at = written - stored + start[None, :] + jnp.arange(settings.window)[:, None]  # [T, N]
    return jax.tree.map(lambda ring: ring[at % settings.replay_rows, jnp.arange(settings.num_envs)], replay)


def hindsight_pairs(settings: Settings, windows: Rows, key: Array) -> Batch:
    """Give each row a later state of its own episode as its goal. -> all [(T - 1) * N, 2] pairs of the windows

    The goal lies k >= 1 steps ahead with probability proportional to discount^k: a geometric distribution, cut where
    the episode or the window ends, by its inverse. An episode's last row is its own goal; a window's is left out.
    """
    now = jnp.arange(settings.window)[:, None]  # [T, 1]
    changes = windows.episode[1:] != windows.episode[:-1]  # [T - 1, N]
    is_last = jnp.concatenate([changes, jnp.ones_like(changes[:1])])  # [T, N]
    end = jax.lax.cummin(jnp.where(is_last, now, settings.window), axis=0, reverse=True)  # [T, N]: the next last row
    left = end - now  # [T, N]
    log_discount = np.log(settings.discount)
    tail = -jnp.expm1(left * log_discount)  # 1 - discount^left
    k = 1 + jnp.floor(jnp.log1p(-jax.random.uniform(key, left.shape) * tail) / log_discount).astype(jnp.int32)
    k = jnp.clip(k, jnp.minimum(left, 1), left)
    future = windows.state[now + k, jnp.arange(settings.num_envs)]  # [T, N, 2]
    pairs = Batch(windows.state, windows.action, windows.commanded, future)
    return jax.tree.map(lambda x: x[:-1].reshape(-1, 2), pairs)


# --- 7. The loop: unroll the actor in all environments, then update on fresh windows of the replay.
class Run(NamedTuple):
    learner: Learner
    acting: Acting
    replay: Rows  # [replay_rows, N, ...]: a ring
    written: Array  # []: rows so far
    key: Array


def init(settings: Settings, key: Array) -> Run:
    key_learner, key_reset, key_run = jax.random.split(key, 3)
    key_actor, key_sa, key_g = jax.random.split(key_learner, 3)
    width, size, num_envs = settings.width, settings.repr_dim, settings.num_envs
    seen = size + 1 if settings.method == "dcp" else 2  # what the actor sees of its goal: [d, r], or g
    params = {
        "actor": init_network(key_actor, 2 + seen, width, 2 * 2),
        "psi_sa": init_network(key_sa, 2 + 2, width, size),
        "psi_g": init_network(key_g, 2, width, size),
        "log_alpha": jnp.zeros(()),
    }
    position, goal = jax.vmap(partial(reset, MAZE))(jax.random.split(key_reset, num_envs))
    zero = jnp.zeros((), jnp.int32)
    pool = Pool(position[jnp.arange(settings.pool_size) % num_envs], zero, goal)
    empty = jnp.zeros((settings.replay_rows, num_envs, 2))
    replay = Rows(empty, empty, empty, jnp.zeros(empty.shape[:2], jnp.int32))
    learner = Learner(params, optax.adam(settings.learning_rate).init(params))
    return Run(learner, Acting(position, position, goal, zero, pool), replay, zero, key_run)


def unroll(settings: Settings, params: Params, acting: Acting, key: Array) -> tuple[Acting, Rows]:
    """Take Algorithm 1's RolloutStep many times: -> rows [unroll_length, N, ...]"""

    def step(acting: Acting, key: Array) -> tuple[Acting, Rows]:
        key_command, key_noise = jax.random.split(key)
        position, first, goal, clock, pool = acting
        commanded = goal
        if settings.method == "dcp":
            pool, commanded = command(settings, params, acting, key_command)
        mean, log_std = actor(settings, params, position, commanded)
        action, _ = sample_action(mean, log_std, jax.random.normal(key_noise, mean.shape))  # [N, 2]
        row = Rows(position, action, commanded, jnp.full(settings.num_envs, clock // EPISODE_LENGTH))
        ends = (clock + 1) % EPISODE_LENGTH == 0
        return Acting(jnp.where(ends, first, jax.vmap(move)(position, action)), first, goal, clock + 1, pool), row

    return jax.lax.scan(step, acting, jax.random.split(key, settings.unroll_length))


def iteration(settings: Settings, run: Run, learns: bool = True) -> tuple[Run, Metrics]:
    """Unroll once, then update once on every shuffled batch of the windows' pairs."""
    key, key_unroll, key_sample, key_noise = jax.random.split(run.key, 4)
    acting, rows = unroll(settings, run.learner.params, run.acting, key_unroll)
    at = (run.written + jnp.arange(settings.unroll_length)) % settings.replay_rows
    replay = jax.tree.map(lambda ring, new: ring.at[at].set(new), run.replay, rows)
    run = run._replace(acting=acting, replay=replay, written=run.written + settings.unroll_length, key=key)
    if not learns:
        return run, {}
    key_window, key_future, key_shuffle = jax.random.split(key_sample, 3)
    pairs = hindsight_pairs(settings, sample_windows(settings, replay, run.written, key_window), key_future)
    order = jax.random.permutation(key_shuffle, len(pairs.state))
    order = order[: len(order) - len(order) % settings.batch_size].reshape(-1, settings.batch_size)  # [updates, B]

    def one_update(learner: Learner, draw: tuple[Array, Array]) -> tuple[Learner, Metrics]:
        batch = jax.tree.map(lambda x: x[draw[0]], pairs)
        return update(settings, learner, batch, jax.random.normal(draw[1], batch.action.shape))

    learner, metrics = jax.lax.scan(one_update, run.learner, (order, jax.random.split(key_noise, len(order))))
    return run._replace(learner=learner), jax.tree.map(jnp.mean, metrics)


def evaluate(settings: Settings, params: Params, key: Array) -> Metrics:
    """Deploy the actor, whose z is now g. Return the paper's two metrics, in means over episodes."""
    position, goal = jax.vmap(partial(reset, EVALUATION_MAZE))(jax.random.split(key, settings.eval_episodes))

    def step(position: Array, _: None) -> tuple[Array, Array]:
        position = jax.vmap(move)(position, jnp.tanh(actor(settings, params, position, goal)[0]))
        return position, jnp.linalg.norm(position - goal, axis=-1) < NEAR

    _, near = jax.lax.scan(step, position, None, EPISODE_LENGTH)  # [steps, N]
    return {"success": jnp.mean(jnp.any(near, axis=0)), "time_near_goal": jnp.mean(jnp.sum(near, axis=0))}


def train(settings: Settings) -> Run:
    key = jax.random.key(settings.seed)
    run, key_evaluations = jax.jit(partial(init, settings))(key), jax.random.split(key, 4)[3]
    learn = jax.jit(partial(iteration, settings), static_argnums=1, donate_argnums=0)  # the replay changes in place
    score = jax.jit(partial(evaluate, settings))
    unrolls = -(-settings.steps // (settings.num_envs * settings.unroll_length))
    first = -(-settings.window // settings.unroll_length)  # unrolls of the untrained actor, which fill a window
    due = {first + round((i + 1) * (unrolls - first) / settings.num_evals) for i in range(settings.num_evals)}
    began = time.perf_counter()
    for number in range(1, unrolls + 1):
        run, metrics = learn(run, number > first)
        if number in due:
            scores = score(run.learner.params, jax.random.fold_in(key_evaluations, number))
            line = [f"{name} {value:.3f}" for name, value in (scores | metrics).items()]
            print(f"{number * settings.num_envs * settings.unroll_length:,} steps", *line,
                  f"{time.perf_counter() - began:.0f} s", sep="  ", flush=True)  # fmt: skip
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description="Train DCP or CRL on a point in a U maze.")
    for field in fields(Settings):
        flag, choices = "--" + field.name.replace("_", "-"), ("dcp", "crl") if field.name == "method" else None
        parser.add_argument(flag, type=type(field.default), default=field.default, choices=choices)
    train(Settings(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()

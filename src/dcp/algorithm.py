"""One algorithm to compose: an environment, an agent and a config, with init, iteration, evaluate and policy.

`Algorithm` is pure: a whole run is one pytree, and every method may be jitted, scanned, or vmapped over seeds.
`machine/programs.py` compiles its parts for one machine.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from dcp.actor import ChunkState, next_chunk_action
from dcp.config import PARTS, Config, fields_where
from dcp.envs.base import Environment, Episodes, EpisodeState, is_exact
from dcp.envs.mazes import share_of_cells_visited
from dcp.envs.registry import env_of
from dcp.errors import UserError
from dcp.interfaces import Agent, CommandState, goals_of
from dcp.learner import Learner, LearnerParams, LearnerState
from dcp.methods.table import checked_agent, config_of, for_task, make_agent, make_part
from dcp.replay import (
    ReplayState,
    init_replay,
    insert,
    moves,
    reads_falls,
    relabel,
    sample_stretches,
    sample_windows,
    shuffled_batches,
    with_data,
    with_more_of,
)
from dcp.types import Array, Batch, Metrics, Transition

if TYPE_CHECKING:
    from dcp.evaluation import Deployment
    from dcp.policies.policy import DeployedPolicy


class ActingState(NamedTuple):
    episodes: EpisodeState
    command: CommandState
    plan: Any = ()  # a ChunkState, where actions are chunks


class RunState(NamedTuple):
    """Hold a run between two iterations: all that its numbers depend on."""

    learner: LearnerState
    acting: ActingState
    replay: ReplayState
    key: Array
    unrolls: Array  # []: unrolls so far; every other count follows from it

    same_for_all_seeds = ("unrolls",)  # fields without an axis of seeds where several seeds are one program


class Draws(NamedTuple):
    """Hold what each update of an iteration sees besides the pairs. [updates, ...]"""

    indices: Array  # [updates, B]: which pairs
    noise: Array  # [updates, B, A]: the actor's
    keys: Array  # [updates]
    seed_states: Array | None  # [updates, M, S]: seeds of the pool that enter the critic's batch


class Mixed(NamedTuple):
    """Hold windows of a run's own experience and of its data."""

    own: Transition  # [T, N, ...]
    data: Transition  # [T, M, ...]


class Stages(Protocol):
    """Declare an iteration's stages: pure functions (`Algorithm`) or compiled ones (`machine.programs.Programs`)."""

    def collect(
        self, params: LearnerParams, acting: ActingState, replay: ReplayState, key: Array
    ) -> tuple[ActingState, ReplayState, Metrics]: ...

    def windows(self, replay: ReplayState, key: Array) -> Transition | Mixed: ...

    def learn(
        self,
        learner: LearnerState,
        windows: Transition | Mixed,
        key_future: Array,
        key_shuffle: Array,
        key_update: Array,
        /,
    ) -> tuple[LearnerState, Metrics]: ...


def restarted(run: RunState) -> RunState:
    """Return the run with every episode begun again, for simulations that its arrays do not hold."""
    episodes = run.acting.episodes
    ids = episodes.episode_id + 1
    episodes = episodes._replace(env=episodes.first, steps=jnp.zeros_like(episodes.steps), episode_id=ids)
    acting = run.acting._replace(episodes=episodes)
    if acting.plan:
        acting = acting._replace(plan=acting.plan._replace(step=jnp.zeros_like(acting.plan.step)))
    return run._replace(acting=acting)


def prefill(stages: Stages, run: RunState) -> RunState:
    """Do one unroll without updates."""
    key, key_collect = jax.random.split(run.key)
    acting, replay, _ = stages.collect(run.learner.params, run.acting, run.replay, key_collect)
    return run._replace(acting=acting, replay=replay, key=key, unrolls=run.unrolls + 1)


def iteration(stages: Stages, run: RunState) -> tuple[RunState, Metrics]:
    """Do one unroll, then one pass over fresh windows of the replay."""
    key, key_collect, key_sample, key_update = jax.random.split(run.key, 4)
    key_window, key_future, key_shuffle = jax.random.split(key_sample, 3)
    acting, replay, acting_metrics = stages.collect(run.learner.params, run.acting, run.replay, key_collect)
    windows = stages.windows(replay, key_window)
    learner, metrics = stages.learn(run.learner, windows, key_future, key_shuffle, key_update)
    return RunState(learner, acting, replay, key, run.unrolls + 1), metrics | acting_metrics


@dataclass(frozen=True)
class Algorithm:
    """Compose an environment, an agent and a config: objects, or names. Equal algorithms share their compiled programs.

    env: an environment or its name; None: the config's. agent: an `Agent`, or a method's name; None: the config's.
    vmap: makes a function of one environment a function of all N: `jax.vmap`, or a split over devices.
    Once made, `config` is resolved: every default is filled in, and it names the agent's parts and their settings.
    """

    env: Environment = None  # pyright: ignore[reportAssignmentType]
    agent: Agent = None  # pyright: ignore[reportAssignmentType]
    config: Config = Config()  # noqa: RUF009
    eval_env: Environment = None  # pyright: ignore[reportAssignmentType]
    vmap: Callable[..., Any] = jax.vmap

    def __post_init__(self) -> None:
        config, env = _with_env(self.config, self.env)
        config = config.resolve(env.spec.episode_length)
        agent = self.agent
        if isinstance(agent, str):
            config, agent = replace(config, method=agent), None
        elif agent is not None:
            config, agent = _with_agent(config, agent, env)
        if config.pool_seed is not None:  # the bits hold for one seed file
            config = replace(config, pool_seed_sha256=_seed_file(config, env).sha256)
        if config.data is not None:
            config = replace(config, data_sha256=_data_file(config, env).sha256)
        eval_env = self.eval_env
        if eval_env is None:
            eval_env = env if config.eval_env == config.env else env_of(config, config.eval_env)
        if eval_env is env and not is_exact(env):
            eval_env = env.for_evaluation()  # pyright: ignore[reportAttributeAccessIssue]
        values = {"env": env, "config": config, "eval_env": eval_env, "agent": agent or make_agent(config, env.spec)}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def decided(self) -> frozenset[str]:
        """Return the config's fields that these environments and parts decide: changing them would have no effect."""
        parts = [getattr(self.agent, kind) for kind in PARTS]
        shared = {name for part in parts for name in getattr(type(part), "from_config", ())}
        return frozenset({*fields_where(of_env=True), *fields_where(of_method=True), *PARTS, *shared, "method"})

    @cached_property
    def learner(self) -> Learner:
        return Learner(self.config, self.env.spec.in_chunks(self.config.action_chunk), self.agent)

    @cached_property
    def episodes(self) -> Episodes:
        config = self.config
        assert config.episode_length is not None
        return Episodes(self.env, config.num_envs, config.episode_length, config.fidelity, self.vmap)

    @cached_property
    def pool_seed_file(self) -> Any:
        """Return the states of the file `pool_seed`, for the pool and the critic; None without one."""
        return None if self.config.pool_seed is None else _seed_file(self.config, self.env)

    @cached_property
    def data(self) -> Transition | None:
        """Return the file `data` as a stream of rows [R, ...], which nothing overwrites; None without one."""
        if self.config.data is None:
            return None
        from dcp.files.experience import at_least

        rows = at_least(_data_file(self.config, self.env).rows, self.config.window or 0)
        return rows if self.stores_falls else rows._replace(fell=None)

    @property
    def deployment(self) -> "Deployment":
        from dcp.evaluation import Deployment

        assert self.config.episode_length is not None
        return Deployment(self.eval_env, self.config.eval_episodes, self.config.episode_length, self.vmap)

    def init(self, key: Array) -> RunState:
        key_learner, key_acting, key_run = jax.random.split(key, 3)
        acting, replay = self.init_experience(key_acting)
        return RunState(self.learner.init(key_learner), acting, replay, key_run, jnp.zeros((), jnp.int32))

    def prefill(self, run: RunState) -> RunState:
        """Do one unroll by the untrained policy, without updates: `config.num_prefill_unrolls` of them come first."""
        return prefill(self, run)

    def iteration(self, run: RunState) -> tuple[RunState, Metrics]:
        """Do one unroll, then one pass over fresh windows of the replay."""
        return iteration(self, run)

    def evaluate(self, run: RunState, key: Array) -> Metrics:
        """Return the two metrics of the paper on fresh goals, as means over `config.eval_episodes` episodes."""
        near = self.deployment.episodes(self.policy(run), key).near_goal  # [T, N]
        return {"time_near_goal": jnp.mean(jnp.sum(near, 0)), "success_once": jnp.mean(jnp.any(near, 0))}

    def policy(self, run: RunState | LearnerParams) -> "DeployedPolicy":
        """Return what this run would deploy now."""
        from dcp.policies.policy import DeployedPolicy

        params = run.learner.deployed if isinstance(run, RunState) else run
        parts = (self.learner.network, self.agent.critic, self.agent.condition)
        return DeployedPolicy(
            self.env.spec, *parts, params.actor, params.critic, self.config.action_chunk, params.scale
        )

    def init_experience(self, key: Array) -> tuple[ActingState, ReplayState]:
        spec, num_envs = self.env.spec, self.config.num_envs
        row = Transition(
            state=jnp.zeros((num_envs, spec.state_size)),
            action=jnp.zeros((num_envs, spec.action_size)),
            commanded_goal=jnp.zeros((num_envs, spec.goal_size)),
            episode_id=jnp.zeros(num_envs, jnp.int32),
            fell=jnp.zeros(num_envs, bool) if self.stores_falls else None,
        )
        episodes = self.episodes.reset(key)
        state, goal = spec.split(episodes.env.obs)
        seed_goals = None if self.pool_seed_file is None else jnp.asarray(self.pool_seed_file.pool)  # [slots, G]
        command = self.agent.command.init(spec.achieved(state), goal, seed_goals)
        plan = ()
        if self.config.action_chunk > 1:
            actions = jnp.zeros((num_envs, self.learner.spec.action_size))
            plan = ChunkState(actions, jnp.zeros(num_envs, jnp.int32))
        return ActingState(episodes, command, plan), init_replay(row, self.config.replay_rows)

    def collect(
        self, params: LearnerParams, acting: ActingState, replay: ReplayState, key: Array
    ) -> tuple[ActingState, ReplayState, Metrics]:
        """Do one unroll of every environment into the replay."""
        acting, rows, metrics = self.unroll(params, acting, key)
        return acting, insert(replay, rows), metrics

    def unroll(self, params: LearnerParams, acting: ActingState, key: Array) -> tuple[ActingState, Transition, Metrics]:
        """Do one unroll. -> acting, transitions [T, N, ...], metrics (means over the unroll)"""

        def step(acting: ActingState, keys: tuple[Array, Array]) -> tuple[ActingState, tuple[Transition, Metrics]]:
            return self.step(params, acting, *keys)

        keys, held = jax.random.split(key, self.config.unroll_length), self.config.noise_hold
        of_noise = keys if held == 1 else keys[jnp.arange(self.config.unroll_length) // held * held]
        acting, (rows, metrics) = jax.lax.scan(step, acting, (keys, of_noise))
        metrics = {name: jnp.mean(values) for name, values in metrics.items()}
        spec = self.env.spec
        if spec.maze is not None and spec.maze_dims is not None:
            positions = rows.state[..., jnp.asarray(spec.maze_dims)].reshape(-1, 2)  # [T * N, 2]
            metrics["cells_visited"] = share_of_cells_visited(spec.maze, positions)
        return acting, rows, metrics

    def step(
        self, params: LearnerParams, acting: ActingState, key: Array, key_of_noise: Array
    ) -> tuple[ActingState, tuple[Transition, Metrics]]:
        """Take Algorithm 1's RolloutStep for all environments. Every method draws from the same keys.

        `key_of_noise`: the key itself, or an earlier step's where noise is held for several steps.
        """
        key_command, _, key_reset = jax.random.split(key, 3)
        key_noise = jax.random.split(key_of_noise, 3)[1]
        learner, spec, episodes = self.learner, self.env.spec, acting.episodes
        state, goal = spec.split(episodes.env.obs)  # [N, S], [N, G]
        achieved = spec.achieved(state)  # [N, G]
        representation = learner.task_representation(params)

        command = acting.command
        if (begin := getattr(self.agent.command, "begin", None)) is not None:
            command = begin(command, achieved, episodes.steps == 0)
        command, commanded = self.agent.command.step(command, achieved, goal, representation, key_command)
        mean, log_std = learner.heads(params, state, commanded)
        action = learner.rule.explore(mean, log_std, jax.random.normal(key_noise, mean.shape))  # [N, A]
        plan = acting.plan
        if plan:
            plan, action = next_chunk_action(plan, action, self.config.action_chunk)
        if (explores := getattr(self.agent.command, "explores", None)) is not None:
            uniform = jax.random.uniform(jax.random.fold_in(key_noise, 1), action.shape, minval=-1.0)
            action = jnp.where(explores(command)[:, None], uniform, action)

        metrics = self.agent.command.metrics(command, achieved, goal)
        metrics["train_near_goal"] = jnp.mean(episodes.env.near_goal)
        after = self.episodes.step(episodes, action, key_reset)
        row = Transition(state, action, commanded, episodes.episode_id)
        ended = after.episode_id != episodes.episode_id  # [N]
        if self.stores_falls:
            row = row._replace(fell=ended & (episodes.steps + 1 < self.episodes.episode_length))
        if plan:
            plan = plan._replace(step=jnp.where(ended, 0, plan.step))  # a new episode begins with a new chunk
        return ActingState(after, command, plan), (row, metrics)

    def windows(self, replay: ReplayState, key: Array) -> Transition | Mixed:
        """Return a fresh window of each environment's rows, [T, N, ...], and as many of the data as batches need."""
        return self.windows_of(replay, self.data, key)

    def windows_of(self, replay: ReplayState, data: Transition | None, key: Array) -> Transition | Mixed:
        """Do the same with the data as an argument, so that a compiled program does not hold them."""
        config = self.config
        assert config.window is not None
        own = sample_windows(replay, config.window, key)
        if data is None:
            return own
        number = -(-config.num_data_pairs * config.num_envs // config.batch_size)
        return Mixed(own, sample_stretches(data, number, config.window, jax.random.fold_in(key, 1)))

    def learn(
        self,
        learner: LearnerState,
        windows: Transition | Mixed,
        key_future: Array,
        key_shuffle: Array,
        key_update: Array,
        lay_out: Callable[[Draws], Draws] = lambda draws: draws,
    ) -> tuple[LearnerState, Metrics]:
        """Pass over the windows' pairs in shuffled batches, all or `updates_per_iteration`; return mean metrics.

        `lay_out`: says where the draws lie, for a program on several devices.
        """
        mixed = isinstance(windows, Mixed)
        seen = jnp.concatenate([part.state for part in windows], axis=1) if mixed else windows.state
        learner = self.learner.observed(learner, seen)
        pairs, order = self.pairs(windows, key_future, key_shuffle)
        learner, metrics = self.updates(learner, pairs, lay_out(self.draws(order, key_update)))
        return self.learner.averaged(learner), metrics

    def pairs(self, windows: Transition | Mixed, key_future: Array, key_shuffle: Array) -> tuple[Batch, Array]:
        """Return every pair of the windows, with its hindsight goal, and the shuffled order of their batches"""
        if isinstance(windows, Mixed):
            return self._mixed_pairs(windows, key_future, key_shuffle)
        config, fields = self.config, self.learner.needs
        hindsight = goals_of(self.agent)
        spec, chunk = self.env.spec, config.action_chunk
        pairs = relabel(windows, spec, config.discount, key_future, fields, hindsight, chunk)
        order = shuffled_batches(pairs.state.shape[0], config.batch_size, key_shuffle)
        order = order if config.updates_per_iteration is None else order[: config.num_updates]
        if share := hindsight.moving_share:
            order = with_more_of(moves(windows, spec), order, share, jax.random.fold_in(key_shuffle, 1))
        return pairs, order

    def _mixed_pairs(self, windows: Mixed, key_future: Array, key_shuffle: Array) -> tuple[Batch, Array]:
        """Return the run's own pairs and then those of the data, with an order that has the share in each batch."""
        pairs, order = self.pairs(windows.own, key_future, key_shuffle)
        more, _ = self.pairs(windows.data, jax.random.fold_in(key_future, 1), key_shuffle)
        counts = len(pairs.state), len(more.state)
        order = with_data(order, *counts, self.config.num_data_pairs, jax.random.fold_in(key_shuffle, 2))
        return jax.tree.map(lambda own, data: jnp.concatenate([own, data]), pairs, more), order

    def draws(self, order: Array, key: Array) -> Draws:
        """Draw what each update sees besides the pairs. order [updates, B]"""
        updates, batch_size = order.shape
        keys = jax.random.split(key, updates)
        noise = jax.vmap(self.learner.noise, in_axes=(0, None))(keys, batch_size)
        seed_states = None
        if self.pool_seed_file is not None and self.pool_seed_file.critic is not None:
            from dcp.methods.pool_seed import sample_seed_states

            states = jnp.asarray(self.pool_seed_file.critic)  # [K, S]
            share = min(round((self.config.pool_seed_fraction or 0.0) * batch_size), states.shape[0])
            seed_states = sample_seed_states(states, updates, share, jax.random.fold_in(key, 1))
        return Draws(order, noise, keys, seed_states)

    def updates(self, learner: LearnerState, pairs: Batch, draws: Draws) -> tuple[LearnerState, Metrics]:
        """Do one update per draw; return the last state and mean metrics."""

        def update(learner: LearnerState, draw: Draws) -> tuple[LearnerState, Metrics]:
            batch = jax.tree.map(lambda x: x[draw.indices], pairs)
            critic_batch = None
            if draw.seed_states is not None:
                from dcp.methods.pool_seed import inject_stationary_pairs

                critic_batch = inject_stationary_pairs(batch, draw.seed_states, self.env.spec)
            return self.learner.step(learner, batch, draw.noise, critic_batch, draw.keys)

        learner, metrics = jax.lax.scan(update, learner, draws)
        return learner, jax.tree.map(jnp.mean, metrics)

    @property
    def stores_falls(self) -> bool:
        """Tell whether the replay keeps which steps ended in a fall: only where the critic asks."""
        return reads_falls(self.learner.needs, goals_of(self.agent))


def _seed_file(config: Config, env: Environment) -> Any:
    from dcp.methods.pool_seed import read_seeds

    return read_seeds(config, env.spec)


def _data_file(config: Config, env: Environment) -> Any:
    from dcp.files.experience import read_experience

    assert config.data is not None
    return read_experience(config.data, env.spec)


def make_algorithm(config: Config) -> Algorithm:
    """Build what the config names."""
    return Algorithm(config=config)


def _with_env(config: Config, env: Environment | str | None) -> tuple[Config, Environment]:
    if env is None:
        return config, env_of(config)
    if isinstance(env, str):
        config = replace(config, env=env)
        return config, env_of(config)
    if config.env == Config.env:  # nobody named it
        config = replace(config, env=env.spec.name)
    return replace(config, physics=env.spec.stepped_by), env


def _with_agent(config: Config, agent: Agent, env: Environment) -> tuple[Config, Agent]:
    """Write the agent into the config, unless the config names it already, and fill in what the task decides."""
    if agent.network is None:
        agent = agent._replace(network=make_part("network", config))
    agent = for_task(checked_agent(agent), env.spec, config.episode_length)
    try:
        is_in_config = agent == make_agent(config, env.spec)
    except UserError:  # a part without a name of its own, such as a class in a notebook
        is_in_config = False
    return (config if is_in_config else config_of(agent, config)), agent

"""One algorithm to compose: an environment, an agent and a config, with init, iteration, evaluate and policy.

`Algorithm` is pure: a whole run is one pytree, and every method may be jitted, scanned, or vmapped over seeds.
`programs.py` compiles its parts for one machine.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from dcp import devices
from dcp.config import PARTS, Config
from dcp.devices import Split
from dcp.envs.base import Environment
from dcp.envs.episodes import Episodes, EpisodeState
from dcp.envs.mazes import share_of_cells_visited
from dcp.envs.registry import env_of
from dcp.errors import UserError
from dcp.evaluation.rollout import Deployment
from dcp.interfaces import Agent, CommandState, hindsight_of
from dcp.learner import Learner, LearnerParams, LearnerState
from dcp.methods.pool_seed import seeds_of
from dcp.methods.table import checked, config_of, for_task, make_agent, make_part, needs
from dcp.networks import actor_heads, in_few_launches
from dcp.policies.policy import DeployedPolicy
from dcp.replay import (
    ReplayState,
    init_replay,
    insert,
    reads_falls,
    relabel,
    resting_draws,
    sample_windows,
    shuffled_batches,
    with_resting_pairs,
)
from dcp.stacked_updates import StackedUpdates
from dcp.types import Array, Batch, Metrics, Transition


class Plan(NamedTuple):
    """The chunk of actions that each environment is taking."""

    actions: Array  # [N, H * A]
    step: Array  # [N]: which of them is next; at 0 the actor plans again


class ActingState(NamedTuple):
    episodes: EpisodeState
    command: CommandState
    plan: Any = ()  # a Plan, where actions are chunks


class RunState(NamedTuple):
    """A run between two iterations: all that its numbers depend on."""

    learner: LearnerState
    acting: ActingState
    replay: ReplayState
    key: Array
    unrolls: Array  # []: unrolls so far; every other count follows from it


class Parts(Protocol):
    """The parts of an iteration: pure functions (`Algorithm`) or compiled ones (`programs.Programs`)."""

    def collect(
        self, params: LearnerParams, acting: ActingState, replay: ReplayState, key: Array
    ) -> tuple[ActingState, ReplayState, Metrics]: ...

    def windows(self, replay: ReplayState, key: Array) -> Transition: ...

    def learn(
        self, learner: LearnerState, windows: Transition, key_future: Array, key_shuffle: Array, key_update: Array, /
    ) -> tuple[LearnerState, Metrics]: ...


def prefill(parts: Parts, run: RunState) -> RunState:
    """Do one unroll without updates."""
    key, key_collect = jax.random.split(run.key)
    acting, replay, _ = parts.collect(run.learner.params, run.acting, run.replay, key_collect)
    return run._replace(acting=acting, replay=replay, key=key, unrolls=run.unrolls + 1)


def iteration(parts: Parts, run: RunState) -> tuple[RunState, Metrics]:
    """Do one unroll, then one pass over fresh windows of the replay."""
    key, key_collect, key_sample, key_update = jax.random.split(run.key, 4)
    key_window, key_future, key_shuffle = jax.random.split(key_sample, 3)
    acting, replay, acting_metrics = parts.collect(run.learner.params, run.acting, run.replay, key_collect)
    windows = parts.windows(replay, key_window)
    learner, metrics = parts.learn(run.learner, windows, key_future, key_shuffle, key_update)
    return RunState(learner, acting, replay, key, run.unrolls + 1), metrics | acting_metrics


@dataclass(frozen=True)
class Algorithm:
    """An environment, an agent and a config: objects, or names. Equal algorithms share their compiled programs.

    env: an environment or its name; None: the config's. agent: an `Agent`, or a method's name; None: the config's.
    Once made, `config` is resolved: every default is filled in, and it names the agent's parts and their settings.
    """

    env: Environment = None  # pyright: ignore[reportAssignmentType]
    agent: Agent = None  # pyright: ignore[reportAssignmentType]
    config: Config = Config()  # noqa: RUF009
    eval_env: Environment = None  # pyright: ignore[reportAssignmentType]

    def __post_init__(self) -> None:
        config, env = _with_env(self.config, self.env)
        devices.prepare(config.devices, env.spec)
        config = config.resolve(env.spec.episode_length)
        agent = self.agent
        if isinstance(agent, str):
            config, agent = replace(config, method=agent), None
        elif agent is not None:
            config, agent = _with_agent(config, agent, env)
        count = devices.count_devices(config.devices, config.num_envs, env.spec)
        batches = config.split_batches or ("on" if devices.splitting_pays(config.batch_size, count) else "off")
        sha256 = seeds_of(config, env.spec)[1]
        # Bits are promised for one layout of devices and one seed file: both are noted.
        config = replace(config, devices=count, split_batches=batches, pool_seed_sha256=sha256)
        eval_env = self.eval_env
        if eval_env is None:
            eval_env = env if config.eval_env == config.env else env_of(config, config.eval_env)
        made = {"env": env, "config": config, "eval_env": eval_env, "agent": agent or make_agent(config, env.spec)}
        for name, value in made.items():
            object.__setattr__(self, name, value)

    @property
    def decided(self) -> frozenset[str]:
        """Return the config's fields that these environments and parts decide: changing them would have no effect."""
        of_envs = {"env", "eval_env", "fidelity", "physics", "randomize"}
        parts = [getattr(self.agent, kind) for kind in PARTS]
        shared = {name for part in parts for name in getattr(type(part), "from_config", ())}
        return frozenset({*of_envs, *PARTS, *shared, "method", "actor_goal", "component_settings"})

    @cached_property
    def split(self) -> Split:
        """Return the devices that share the environments out."""
        return devices.make_split(self.config.devices or 1)

    @cached_property
    def learner(self) -> Learner:
        return Learner(self.config, self.env.spec.in_chunks(self.config.action_chunk), self.agent)

    @cached_property
    def episodes(self) -> Episodes:
        config = self.config
        assert config.episode_length is not None
        return Episodes(self.env, config.num_envs, config.episode_length, config.fidelity, self.split)

    @cached_property
    def seeds(self) -> Any:
        """The states of the file `pool_seed`; None without one."""
        return seeds_of(self.config, self.env.spec)[0]

    @property
    def deployment(self) -> Deployment:
        assert self.config.episode_length is not None
        return Deployment(self.eval_env, self.config.eval_episodes, self.config.episode_length, self.split)

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

    def policy(self, run: RunState | LearnerParams) -> DeployedPolicy:
        """Return what this run would deploy now."""
        params = run.learner.params if isinstance(run, RunState) else run
        parts = (self.learner.network, self.agent.critic, self.agent.condition)
        return DeployedPolicy(self.env.spec, *parts, params.actor, params.critic, self.config.action_chunk)

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
        seeds = None if self.seeds is None else jnp.asarray(self.seeds.pool.rows)  # [slots, G]
        command = self.agent.command.init(spec.achieved(state), goal, seeds)
        plan = ()
        if self.config.action_chunk > 1:
            actions = jnp.zeros((num_envs, self.learner.spec.action_size))
            plan = Plan(actions, jnp.zeros(num_envs, jnp.int32))
        return ActingState(episodes, command, plan), init_replay(row, self.config.replay_rows)

    def collect(
        self, params: LearnerParams, acting: ActingState, replay: ReplayState, key: Array
    ) -> tuple[ActingState, ReplayState, Metrics]:
        """Do one unroll of every environment into the replay."""
        acting, rows, metrics = self.unroll(params, acting, key)
        return acting, insert(replay, rows), metrics

    def unroll(self, params: LearnerParams, acting: ActingState, key: Array) -> tuple[ActingState, Transition, Metrics]:
        """-> acting, transitions [T, N, ...], what happened (means over the unroll)"""

        def step(acting: ActingState, key: Array) -> tuple[ActingState, tuple[Transition, Metrics]]:
            return self.step(params, acting, key)

        acting, (rows, metrics) = jax.lax.scan(step, acting, jax.random.split(key, self.config.unroll_length))
        metrics = {name: jnp.mean(values) for name, values in metrics.items()}
        spec = self.env.spec
        if spec.maze is not None and spec.maze_dims is not None:
            positions = rows.state[..., jnp.asarray(spec.maze_dims)].reshape(-1, 2)  # [T * N, 2]
            metrics["cells_visited"] = share_of_cells_visited(spec.maze, positions)
        return acting, rows, metrics

    def step(
        self, params: LearnerParams, acting: ActingState, key: Array
    ) -> tuple[ActingState, tuple[Transition, Metrics]]:
        """Take Algorithm 1's RolloutStep for all environments. Every method draws from the same keys."""
        key_command, key_noise, key_reset = jax.random.split(key, 3)
        learner, spec, episodes = self.learner, self.env.spec, acting.episodes
        state, goal = spec.split(episodes.env.obs)  # [N, S], [N, G]
        achieved = spec.achieved(state)  # [N, G]
        representation = learner.representation(params.critic)

        command, commanded = self.agent.command.step(acting.command, achieved, goal, representation, key_command)
        condition = self.agent.condition(representation, achieved, commanded)
        mean, log_std = actor_heads(learner.network, params.actor, state, condition)
        action = learner.rule.explore(mean, log_std, jax.random.normal(key_noise, mean.shape))  # [N, A]
        plan = acting.plan
        if plan:
            action, plan = self._in_turn(plan, action)

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

    def _in_turn(self, plan: Plan, planned: Array) -> tuple[Array, Plan]:
        """Take the next action of each chunk, or the first of a new one. planned [N, H * A] -> [N, A], the next plan"""
        num, size = planned.shape[0], self.env.spec.action_size
        actions = jnp.where((plan.step == 0)[:, None], planned, plan.actions)
        action = actions.reshape(num, -1, size)[jnp.arange(num), plan.step]
        return action, Plan(actions, (plan.step + 1) % self.config.action_chunk)

    def windows(self, replay: ReplayState, key: Array) -> Transition:
        """Return a fresh window of each environment's rows, [T, N, ...]"""
        assert self.config.window is not None
        return sample_windows(replay, self.config.window, key)

    def learn(
        self, learner: LearnerState, windows: Transition, key_future: Array, key_shuffle: Array, key_update: Array
    ) -> tuple[LearnerState, Metrics]:
        """Pass over the windows' pairs in shuffled batches, all or `updates_per_iteration`; return mean metrics."""
        return self.updates(learner, *self.pairs(windows, key_future, key_shuffle), key_update)

    def pairs_and_steps(self, windows: Transition, *keys: Array) -> tuple[Batch, Any]:
        """Do all of `learn` but the updates."""
        key_future, key_shuffle, key_update = keys
        pairs, order = self.pairs(windows, key_future, key_shuffle)
        return pairs, self.steps(order, key_update)

    def pairs(self, windows: Transition, key_future: Array, key_shuffle: Array) -> tuple[Batch, Array]:
        """-> every pair of the windows, with its hindsight goal, and the shuffled order of their batches"""
        config, wanted = self.config, needs(self.agent)
        hindsight = hindsight_of(self.agent.critic)
        spec, chunk = self.env.spec, config.action_chunk
        pairs = relabel(windows, spec, config.discount, key_future, wanted, hindsight, chunk)
        order = shuffled_batches(pairs.state.shape[0], config.batch_size, key_shuffle)
        return pairs, order if config.updates_per_iteration is None else order[: config.num_updates]

    def updates(self, learner: LearnerState, pairs: Batch, order: Array, key: Array) -> tuple[LearnerState, Metrics]:
        """order [updates, B]: which pairs each update sees"""
        steps = self.steps(order, key)
        forms = {"cpu": self._updates, "default": self._updates_in_few_launches}
        return jax.lax.platform_dependent(learner, pairs, steps, **forms)

    def steps(self, order: Array, key: Array) -> tuple[Array, Array, Array, Array | None]:
        """-> what each update sees besides the pairs: which of them, noise [updates, B, A], key, states of the pool"""
        keys = jax.random.split(key, order.shape[0])
        noise = jax.vmap(self.learner.noise, in_axes=(0, None))(keys, order.shape[1])
        if self.splits_batches:  # each device takes its share of every batch; XLA sums and gathers what all must know
            order, noise = jax.lax.with_sharding_constraint((order, noise), self.split.along(1))
        return order, noise, keys, self._resting_states(order, key)

    def _updates(self, learner: LearnerState, pairs: Batch, steps: Any) -> tuple[LearnerState, Metrics]:
        learner, metrics = jax.lax.scan(partial(self._update, self.learner, pairs), learner, steps)
        return learner, jax.tree.map(jnp.mean, metrics)

    def _updates_in_few_launches(self, learner: LearnerState, pairs: Batch, steps: Any) -> tuple[LearnerState, Metrics]:
        """The same, for a GPU, where every operation on its own is a launch: arrays that are treated alike are one."""
        names: list[str] = []
        form: Any = replace(self.learner, agent=self.agent._replace(network=in_few_launches(self.learner.network)))
        if not self.splits_batches and steps[-1] is None:  # one place and one batch for critic and actor
            form = StackedUpdates.of(self.learner) or form

        def one(learner: LearnerState, step: Any) -> tuple[LearnerState, Array]:
            learner, metrics = self._update(form, pairs, learner, step)
            names[:] = metrics
            return learner, jnp.stack(list(metrics.values()))

        learner, metrics = jax.lax.scan(one, form.flattened(learner), steps)  # metrics [updates, number]
        return form.unflattened(learner), dict(zip(names, jnp.mean(metrics, axis=0), strict=True))

    def _update(
        self, form: Learner | StackedUpdates, pairs: Batch, learner: LearnerState, step: Any
    ) -> tuple[LearnerState, Metrics]:
        indices, noise, key, resting = step
        batch = jax.tree.map(lambda x: x[indices], pairs)
        for_critic = None if resting is None else with_resting_pairs(batch, resting, self.env.spec)
        return form.step(learner, batch, noise, for_critic, key)

    def _resting_states(self, order: Array, key: Array) -> Array | None:
        """[updates, M, S]: the pool's seeds that enter the critic's part of each update, where they are to"""
        if self.seeds is None or self.seeds.critic is None:
            return None
        states = jnp.asarray(self.seeds.critic.rows)  # [K, S]
        share = min(round((self.config.pool_seed_fraction or 0.0) * self.config.batch_size), states.shape[0])
        return states[resting_draws(jax.random.fold_in(key, 1), order.shape[0], states.shape[0], share)]

    @property
    def stores_falls(self) -> bool:
        """Tell whether the replay keeps which steps ended in a fall: only where the critic asks."""
        return reads_falls(needs(self.agent), hindsight_of(self.agent.critic))

    @property
    def splits_batches(self) -> bool:
        return self.split.count > 1 and self.config.split_batches == "on"


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
    """Write the agent into the config, unless it is there already, and fill in what the task decides."""
    if agent.network is None:
        agent = agent._replace(network=make_part("network", config))
    agent = for_task(checked(agent), env.spec, config.episode_length)
    try:
        is_there = agent == make_agent(config, env.spec)
    except UserError:  # a part without a name of its own, such as a class in a notebook
        is_there = False
    return (config if is_there else config_of(agent, config)), agent

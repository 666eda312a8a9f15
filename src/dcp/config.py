"""Every setting of a run, in one frozen place, with every check that needs no environment."""

import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from dcp.errors import UserError, shown
from dcp.named_code import GYM, is_code, is_gym_id

SCHEMA_VERSION = 2  # of config.json: 2 has earlier_budgets
Physics = Literal["brax", "mujoco"]
PHYSICS: tuple[str, ...] = get_args(Physics)
Control = Literal["joints", "tool"]
CONTROLS: tuple[str, ...] = get_args(Control)
RENAMED_ENVS = {"ant_ball": "ant_soccer"}  # JaxGCRL's name -> ours
DATA_SHARE = 0.5  # of each batch, if data are given without a share
SEED_FRACTION = 0.25  # of the pool, if seeds are given without a fraction


class Fixed(dict[str, Any]):
    """A dictionary that is never changed, so that a config can be compared and hashed."""

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(json.dumps(self, sort_keys=True, default=str))


def setting(default: Any, **facts: Any) -> Any:
    """Return a field of `Settings` with facts about it, which `fields_where` finds.

    Limits: at_least, at_most, above, below. code: it may name code as module:name. grows: a resumed run may raise it.
    run_decides: None is filled in when the run starts, and on resume it matches any value. compared=False: it is
    ignored where runs are grouped by their settings. of_method: it belongs to the method's row. of_env: an environment
    is made with it.
    """
    return field(default=default, metadata=facts)


@dataclass(frozen=True)
class Settings:
    """Settings of a run, unchecked. Defaults are the paper's."""

    def __post_init__(self) -> None:
        for name in ("env", "eval_env"):
            if type(old := getattr(self, name)) is str and old in RENAMED_ENVS:
                object.__setattr__(self, name, RENAMED_ENVS[old])
        if type(self.component_settings) is dict:
            object.__setattr__(self, "component_settings", Fixed(self.component_settings))

    # What to train
    env: str = setting("point_u_maze", code=True, of_env=True)
    """An environment's name (`dcp envs`), your own as module:factory, or gym:ID for one that Gymnasium knows."""
    method: str = setting("dcp", code=True)
    """A row of the table of methods (`dcp methods`)."""
    seed: int = setting(0, at_least=0, at_most=2**32 - 1, compared=False)
    """Decides every random number of the run."""
    steps: int = setting(50_000_000, at_least=1, at_most=2**63 - 1, grows=True, compared=False)
    """Environment steps; rounded up to whole unrolls of all environments."""
    eval_env: str | None = setting(None, code=True, run_decides=True, compared=False, of_env=True)
    """Evaluate on another environment of the same sizes, such as a layout with far goals only. Default: env."""
    fidelity: Literal["paper", "fixed"] = setting("paper", of_env=True)
    """paper: an environment returns to its own first state and goal forever. fixed: every episode draws new ones."""
    physics: Physics = setting("brax", of_env=True)  # noqa: RUF009
    """What steps a simulated body: the paper's engine (brax), or MuJoCo's own in C, for a machine without a GPU."""

    randomize: str | None = setting(None, of_env=True)
    """What changes between episodes of a so101 task: all, or some of gains, friction, masses, delay, offsets, encoders,
    separated by commas. Default: nothing."""
    control: Control = setting("joints", of_env=True)  # noqa: RUF009
    """What an action moves in so101_push and so101_lift: the joints, or the tool point (tool) by up to 2 cm a step."""

    # What the actor is asked for (the paper's pool: 512 states, 32 candidates, every 25 steps)
    actor_goal: Literal["future", "commanded", "mixed"] | None = setting(None, of_method=True)
    """What the actor's loss aims at. Default: the method's row."""
    critic: str | None = setting(None, code=True, of_method=True)
    """What trains psi and values actions: a row (`dcp methods`), or your own as module:name. Default: the method's."""
    command: str | None = setting(None, code=True, of_method=True)
    """Which goal the rollout asks for: a row, or your own as module:name. Default: the method's."""
    condition: str | None = setting(None, code=True, of_method=True)
    """What the actor sees of its goal: a row, or your own as module:name. Default: the method's."""
    component_settings: Mapping[str, Any] = setting(Fixed(), of_method=True)
    """Settings of parts that are not fields here, by kind and field: --condition.scale 2.0."""
    pool_size: int = setting(512, at_least=1)
    """P: visited states that z is chosen from."""
    num_candidates: int = setting(32, at_least=1)
    """C: states of the pool that are ranked at each choice."""
    subgoal_period: int = setting(25, at_least=1)
    """Environment steps between two choices of z."""
    pool_refresh_steps: int | None = setting(None, at_least=1, run_decides=True)
    """Environment steps in which the pool is replaced once. Default: one episode."""
    score: str = setting("inner_product", code=True)
    """How candidates are ranked: inner_product (the paper's), cosine, energy, on_path, reachable,
    frontier or quasimetric."""
    final_goal_share: float = setting(0.0, at_least=0.0, at_most=1.0)
    """Share of the environments that are commanded g itself (0: the paper's)."""
    pool_seed: str | None = None
    """A file of states (NPZ or CSV, no actions) that the pool holds from the start. Default: none, as in the paper."""
    pool_seed_fraction: float | None = setting(None, above=0.0, at_most=1.0, run_decides=True)
    """Share of the pool's slots that hold seeds and are never overwritten. Default: a quarter, with a pool_seed."""
    pool_seed_in_critic: bool = False
    """The seeds also in the critic's data, as bodies at rest: that share of each batch (a pool is never in InfoNCE)."""
    pool_seed_sha256: str | None = setting(None, run_decides=True)
    """The seed file's hash: a file that changed is refused. Default: the file's own, written into config.json."""
    data: str | None = None
    """Experience of others mixed into every batch: OGBench's NPZ, or a Minari data set such as `dcp record` makes."""
    data_share: float | None = setting(None, above=0.0, at_most=1.0, run_decides=True)
    """Share of each batch that comes from the data. Default: half, with data."""
    data_sha256: str | None = setting(None, run_decides=True)
    """The data's hash: data that changed are refused. Default: their own, written into config.json."""

    # The loop
    num_envs: int = setting(512, at_least=1)
    """N: environments that run side by side."""
    devices: int | None = setting(None, at_least=1, run_decides=True, compared=False)
    """Devices to split the environments over. Default: every GPU; on a CPU one virtual device per core; 1 without
    physics and under MuJoCo's own engine."""
    split_batches: Literal["on", "off"] | None = setting(None, run_decides=True, compared=False)
    """Split each batch over the devices too. Default: where it pays, with large batches on several GPUs."""
    episode_length: int | None = setting(None, at_least=2, run_decides=True)
    """Default: the environment's own."""
    unroll_length: int = setting(62, at_least=1)
    """Environment steps between two rounds of updates."""
    window: int | None = setting(None, at_least=2, run_decides=True)
    """Consecutive rows sampled from each environment in an iteration. Default: one episode."""
    batch_size: int = setting(256, at_least=2)
    """B: pairs in an update."""
    action_chunk: int = setting(1, at_least=1)
    """H: the actor plans this many steps at once and takes them all before it looks again. 1: the paper's."""
    updates_per_iteration: int | None = setting(None, at_least=1)
    """Updates after each unroll, each on a whole batch of its own. Default: on all that the windows have."""
    replay_rows: int = setting(10_000, at_least=2)
    """Capacity; a row is one time step of all environments."""
    min_replay_rows: int = setting(1_000, at_least=1)
    """Rows gathered by the untrained policy before the first update."""
    num_evals: int = setting(50, at_least=1, at_most=1_000_000, grows=True, compared=False)
    """Evaluations, evenly spread over the run."""
    eval_episodes: int = setting(256, at_least=1, compared=False)
    """Episodes in an evaluation."""

    # The learner
    discount: float = setting(0.99, above=0.0, below=1.0)
    """How far ahead hindsight goals lie: k steps with probability proportional to discount^k."""
    hindsight: str | None = setting(None, code=True)
    """Where hindsight goals come from: future, uniform, final (JaxGCRL's HER), her, or your own as module:name.
    Default: the critic's own."""
    normalize: Literal["none", "running", "task"] = "none"
    """Inputs of about unit size: by running mean and spread, or by the task's own scale. none: the paper's."""
    noise_hold: int = setting(1, at_least=1)
    """Steps for which the rollout keeps a draw of the action's noise. 1: the paper's."""
    actor_learning_rate: float = setting(3e-4, above=0.0)
    """Adam's, for the actor."""
    critic_learning_rate: float = setting(3e-4, above=0.0)
    """Adam's, for psi_sa and psi_g."""
    alpha_learning_rate: float = setting(3e-4, above=0.0)
    """Adam's, for the temperature."""
    energy: str = setting("norm", code=True)
    """norm (the paper's), l2, dot or cosine."""
    contrastive_loss: str = setting("backward", code=True)
    """backward (the paper's), forward, symmetric or binary_nce."""
    logsumexp_penalty: float = setting(0.1, at_least=0)
    """Weight of the critic's penalty on squared row-wise log-sum-exp."""
    average_weights: int = setting(0, at_least=0)
    """Evaluate and save the mean of the weights after about this many iterations. 0: the last weights, the paper's."""
    target_entropy_scale: float = setting(0.5, at_least=0)
    """The target entropy is minus this times A."""
    action_change_penalty: float = setting(0.0, at_least=0)
    """Weight of the actor's penalty on squared changes of its action from a state to the next. 0: none, the paper's."""

    # The networks
    network: str = setting("mlp", code=True)
    """The backbone of actor and critic: mlp (the paper's), residual (Scaled CRL's), or your own as module:name."""
    width: int = setting(256, at_least=1)
    """Units of each hidden layer."""
    depth: int = setting(2, at_least=1, at_most=10_000)
    """Hidden layers of each network; of a residual network those in its blocks of four: 4 to 64 (below 4: none)."""
    repr_dim: int = setting(64, at_least=1)
    """D, the size of psi."""
    activation: str = setting("swish", code=True)
    """swish or relu."""
    layer_norm: bool = False
    """LayerNorm before each activation, in actor and critic (JaxGCRL's use_ln: only in the critic)."""
    residual_every: int = setting(0, at_least=0)
    """Add a residual connection after every this many layers; 0: none."""

    def violations(self) -> list[str]:
        """Return every broken constraint that can be seen without the environment, each with the fix."""
        return type_violations(self) or [*range_violations(self), *_cross_violations(self)]

    def resolve(self, episode_length: int) -> Self:
        """Fill in what the environment decides. Resolved settings resolve to themselves."""
        length = _default(self.episode_length, episode_length)
        return dataclasses.replace(
            self,
            eval_env=_default(self.eval_env, self.env),
            episode_length=length,
            window=_default(self.window, length),
            pool_refresh_steps=_default(self.pool_refresh_steps, length),
            pool_seed_fraction=_default(self.pool_seed_fraction, None if self.pool_seed is None else SEED_FRACTION),
            data_share=_default(self.data_share, None if self.data is None else DATA_SHARE),
        )

    @property
    def env_steps_per_unroll(self) -> int:
        return self.num_envs * self.unroll_length

    @property
    def num_unrolls(self) -> int:
        """Return the smallest whole number of unrolls that reaches the budget."""
        return _whole(self.steps, self.env_steps_per_unroll)

    @property
    def num_prefill_unrolls(self) -> int:
        return _whole(max(self.min_replay_rows, self.window or 0), self.unroll_length)

    @property
    def num_iterations(self) -> int:
        """Return unrolls that are followed by updates."""
        return self.num_unrolls - self.num_prefill_unrolls

    @property
    def num_batches(self) -> int:
        """Return whole batches that one iteration's windows hold; the rest of the pairs is left out."""
        return self.num_envs * ((self.window or 1) - 1) // self.batch_size

    @property
    def num_data_pairs(self) -> int:
        """Return how many pairs of each batch come from the data."""
        return 0 if self.data is None else round(_default(self.data_share, DATA_SHARE) * self.batch_size)

    @property
    def num_updates(self) -> int:
        """Return updates of one iteration."""
        return self.num_batches if self.updates_per_iteration is None else self.updates_per_iteration

    @property
    def run_path(self) -> str:
        parts = [self.critic, self.command, self.condition]
        own = [part for part in parts if part is not None and None in parts]  # all of them: the method is a label
        own += [self.network] * (self.network != "mlp")
        own += [_named(values) for kind in PARTS if is_code(getattr(self, kind)) and (values := self.settings_of(kind))]
        method = "-".join(map(str, [self.method, *own])).replace(":", ".")
        env = self.env.replace(":", ".").replace("/", ".")  # an id of Gymnasium may have a namespace
        return f"{env}/{method}/seed_{self.seed}"

    @property
    def code(self) -> dict[str, str]:
        """Return what names code outside the package as module:name, by the flag that names it again."""
        named = {name: value for name in MAY_BE_CODE if is_code(value := getattr(self, name))}
        named |= {name: value for name, value in self.component_settings.items() if is_code(value)}
        if self.eval_env == self.env:
            named.pop("eval_env", None)
        return {name.replace("_", "-"): value for name, value in named.items()}

    def settings_of(self, kind: str) -> dict[str, Any]:
        """Return the settings of the critic, command, condition or network that are not fields of the config."""
        values = self.component_settings.items()
        return {name.removeprefix(f"{kind}."): value for name, value in values if name.startswith(f"{kind}.")}

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2)


@dataclass(frozen=True)
class Config(Settings):
    """Settings that have passed their checks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        problems = self.violations()
        if problems:
            raise UserError("; ".join(problems))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        values = gathered(values)
        unknown = sorted(set(values) - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise UserError(
                f"unknown config field {shown(unknown[0])}: remove it, or see `dcp train --help` for the names"
            )
        return cls(**values)


@dataclass(frozen=True)
class Tracking:
    """Say where else a run's rows go."""

    tensorboard: bool = False
    """Also write TensorBoard events into the run folder."""
    wandb: bool = False
    """Also log to Weights & Biases. A resumed run continues its W&B run."""
    trackio: bool = False
    """Also log to trackio, as to W&B, but on this machine."""
    wandb_project: str | None = None
    """Project for --wandb and --trackio. Default: dcp."""
    wandb_group: str | None = None
    """Group for --wandb and --trackio. Default: environment and method, so that seeds are together."""
    wandb_name: str | None = None
    """Name for --wandb and --trackio. Default: environment, method and seed."""
    wandb_entity: str | None = None
    """The user or team at W&B. Default: the one that is logged in."""

    @property
    def loggers(self) -> list[str]:
        return [name for name in ("tensorboard", *self.trackers) if getattr(self, name)]

    @property
    def trackers(self) -> list[str]:
        """Return which of the two with the same calls."""
        return [name for name in ("wandb", "trackio") if getattr(self, name)]


WITH_SETTINGS = ("critic", "command", "condition", "network", "hindsight")
PARTS = ("critic", "command", "condition", "network")  # of an agent: each may have settings of its own


def fields_where(**facts: Any) -> tuple[str, ...]:
    """Return the names of the settings of which these facts are stated, in their order: fields_where(code=True)."""
    entries = dataclasses.fields(Settings)
    return tuple(f.name for f in entries if all(f.metadata.get(fact) == value for fact, value in facts.items()))


MAY_BE_CODE = fields_where(code=True)


def gathered(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields for `Settings` from a table: {"condition.scale": 2}, or nested: {"condition": {"scale": 2}}."""
    fields: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name, value in values.items():
        if name in WITH_SETTINGS and isinstance(value, Mapping) and value:
            own |= {f"{name}.{field}": setting for field, setting in value.items()}
        elif "." in name:
            own[name] = value
        else:
            fields[name] = value
    stored = fields.get("component_settings", {})
    if own and not isinstance(stored, Mapping):
        raise UserError(f"component_settings is {shown(stored)}: give a table of settings, such as condition.scale")
    return fields | ({"component_settings": {**stored, **own}} if own else {})


def is_setting(name: str) -> bool:
    """Tell whether this is a field, or a setting of one of an agent's parts such as condition.scale."""
    return name in field_kinds() or (name.partition(".")[0] in WITH_SETTINGS and "." in name)


def cores() -> int:
    """Return the number of threads that XLA makes too: $NPROC if it is set, else the cores that this process may use.

    A grid sets NPROC where a run gets a share of a machine. The number decides bits, so a run that is resumed on
    another machine must get as many.
    """
    share = os.environ.get("NPROC", "")
    if share.isdecimal() and int(share) > 0:
        return int(share)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _default(value: Any, default: Any) -> Any:
    """Return the default for None only: a zero is a mistake that the checks must see."""
    return default if value is None else value


def _kinds(hint: Any) -> set[type]:
    """Return the plain types that a field takes: int | None -> {int, NoneType}, Literal["a"] -> {str}, float: int"""
    if isinstance(hint, type):
        return {float, int} if hint is float else {hint}
    if get_origin(hint) is Literal:
        return {str}
    if get_origin(hint) is Mapping:
        return {Fixed}
    return set().union(*(_kinds(part) for part in get_args(hint)))


@cache
def field_kinds() -> dict[str, set[type]]:
    """Return the plain types of every field."""
    return {name: _kinds(hint) for name, hint in get_type_hints(Settings).items()}


@cache
def _choices() -> dict[str, tuple[str, ...]]:
    """Return the choices of every field that has a few."""
    hints = {name: (hint, *get_args(hint)) for name, hint in get_type_hints(Settings).items()}
    return {name: get_args(part) for name, parts in hints.items() for part in parts if get_origin(part) is Literal}


def type_violations(s: Settings) -> list[str]:
    """Return wrong types, and numbers that no arithmetic here can hold. What passes can be compared and printed."""
    problems = []
    for name, kinds in field_kinds().items():
        value = getattr(s, name)
        if type(value) not in kinds:
            types = " or ".join(sorted(kind.__name__ for kind in kinds - {type(None)}))
            problems.append(f"{name} must be {types}, not {shown(value)}")
        elif isinstance(value, float) and not math.isfinite(value):
            problems.append(f"{name} must be finite, not {value!r}")
        elif float in kinds and value is not None and abs(value) > _FLOAT32_MAX:
            problems.append(f"{name} must fit a 32-bit float, not {shown(value)}: use at most 3.4e38")
        elif type(value) is int and not -(2**63) <= value < 2**63:
            problems.append(f"{name} must fit 64 bits, not {shown(value)}: use a number below 2**63")
        elif name in ("env", "eval_env") and str(value).startswith(GYM):
            if not is_gym_id(value):
                problems.append(
                    f"{name} is {shown(value)}: write gym:ID with the id alone, and name the module that registers it "
                    "by --import"
                )
        elif name in ("env", "eval_env") and ":" in str(value) and not is_code(value):
            problems.append(f"{name} is {shown(value)}: use a name of `dcp envs`, or your own as module:factory")
    return problems


def _named(settings: Mapping[str, Any]) -> str:
    """Return settings as part of a folder's name: scale_2.0, or the start of a checksum where that is long or odd."""
    text = "-".join(f"{name}_{value}" for name, value in sorted(settings.items()))
    if re.fullmatch(r"[A-Za-z0-9_.+-]{1,60}", text):
        return text
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


_FLOAT32_MAX = 3.4028234e38
_LABEL = re.compile(r"(?!\.)[A-Za-z0-9_.:+-]{1,100}")
_INT32_MAX = 2**31 - 1


def _beyond(value: float, limits: Mapping[str, Any]) -> str | None:
    """Return what to use instead of a number beyond its limits, None within them."""
    least, most, above, below = (limits.get(name) for name in ("at_least", "at_most", "above", "below"))
    if most is None and above is None and isinstance(value, int):
        most = _INT32_MAX  # sizes and counts of time steps are 32-bit integers on the device
    is_low = (least is not None and value < least) or (above is not None and value <= above)
    is_high = (most is not None and value > most) or (below is not None and value >= below)
    if not (is_low or is_high):
        return None
    if above is not None and below is not None:
        return f"a number between {above:g} and {below:g}, both excluded"
    if most == 1.0 and (least, above) in ((0.0, None), (None, 0.0)):
        return "a share from 0 to 1" if above is None else "a share above 0 and up to 1"
    if (above, most, below) == (0.0, None, None):
        return "a positive number"
    if is_low:
        return f"at least {least}" if least is not None else f"a number above {above:g}"
    return f"at most {most}" if most is not None else f"a number below {below:g}"


def range_violations(s: Settings) -> list[str]:
    """Return numbers beyond their limits and unknown choices, each setting by itself. Types are right."""
    problems = []
    for entry in dataclasses.fields(Settings):
        name, value, choices = entry.name, getattr(s, entry.name), _choices().get(entry.name, ())
        if type(value) in (int, float) and (instead := _beyond(value, entry.metadata)):
            problems.append(f"{name} is {value}: use {instead}")
        if value is not None and choices and value not in choices:
            problems.append(f"unknown {name} {shown(value)}: choose one of {', '.join(choices)}")
    for name, value in s.component_settings.items():
        part, *path = name.split(".")
        if part not in WITH_SETTINGS or not path or not all(word.isidentifier() for word in path):
            problems.append(f"component_settings has {shown(name)}: write it as condition.scale, part and setting")
        elif not isinstance(value, str | int | float | bool | list | tuple | None):
            problems.append(f"{name} is {shown(value)}: use a number, text or a list")
    if not _LABEL.fullmatch(s.method):
        problems.append(
            f"method is {shown(s.method)}, which names a folder: use up to 100 letters, digits and _ . : + -, "
            "without a dot at the start"
        )
    return problems


def _cross_violations(s: Settings) -> list[str]:
    """Check fields against each other. Those on the window wait until it is known: see `Config.resolve`."""
    problems = []
    if s.num_candidates > s.pool_size >= 1:
        problems.append(
            f"num_candidates {s.num_candidates} exceeds pool_size {s.pool_size}: lower the one or raise the other"
        )
    problems += _seed_violations(s)
    if s.data is None:
        idle = [name for name in ("data_share", "data_sha256") if getattr(s, name) is not None]
        problems += [f"{name} is about data, and there are none: name a file as data, or leave it out" for name in idle]
    elif s.num_data_pairs < 1 <= s.batch_size and (s.data_share or DATA_SHARE) > 0.0:
        problems.append(f"data_share {s.data_share} of batch_size {s.batch_size} is below one pair: raise one of them")
    if 2 <= s.replay_rows < s.min_replay_rows:
        problems.append(f"min_replay_rows {s.min_replay_rows} exceeds replay_rows {s.replay_rows}: raise replay_rows")
    if s.unroll_length > s.replay_rows >= 2:
        problems.append(f"unroll_length {s.unroll_length} exceeds replay_rows {s.replay_rows}: raise replay_rows")
    if s.devices is not None and s.devices >= 1 and s.num_envs % s.devices:
        problems.append(
            f"devices {s.devices} cannot share out num_envs {s.num_envs} evenly: "
            f"try num_envs {_whole(s.num_envs, s.devices) * s.devices}, or fewer devices"
        )
    if s.split_batches == "on" and s.devices is not None and s.devices >= 1 and s.batch_size % s.devices:
        problems.append(
            f"devices {s.devices} cannot share out batch_size {s.batch_size} evenly: "
            f"use split_batches off, or batch_size a multiple of {s.devices}"
        )
    if s.residual_every >= s.depth >= 1 and s.residual_every > 0:
        problems.append(
            f"residual_every {s.residual_every} makes no connection in {s.depth} layers: "
            f"use depth {s.residual_every + 1} or more, or residual_every 0"
        )
    if s.window is None or min(s.window, s.num_envs, s.batch_size) < 1:
        return problems
    if s.action_chunk >= s.window > 1:
        problems.append(f"action_chunk {s.action_chunk} does not fit into a window of {s.window} rows: lower it")
    if s.window > s.replay_rows >= 2:
        problems.append(f"window {s.window} exceeds replay_rows {s.replay_rows}: raise replay_rows to {s.window}")
    pairs = s.num_envs * (s.window - 1)
    if pairs < s.batch_size:
        problems.append(
            f"num_envs * (window - 1) = {s.num_envs} * {s.window - 1} = {pairs} pairs are fewer than batch_size "
            f"{s.batch_size}: lower batch_size, or raise num_envs or window"
        )
    elif s.updates_per_iteration is not None and s.updates_per_iteration > s.num_batches:
        problems.append(
            f"updates_per_iteration {s.updates_per_iteration} exceeds the {s.num_batches} batches of an iteration: "
            "lower it, or leave it out to use them all"
        )
    if pairs > _INT32_MAX:
        problems.append(
            f"num_envs * (window - 1) = {s.num_envs} * {s.window - 1} = {pairs} pairs exceed {_INT32_MAX}: "
            "lower num_envs or window"
        )
    if min(s.steps, s.num_evals, s.unroll_length) < 1:
        return problems
    prefill, unrolls = s.num_prefill_unrolls, s.num_unrolls
    least = (prefill + s.num_evals) * s.env_steps_per_unroll
    if unrolls < prefill + s.num_evals:
        problems.append(
            f"steps {s.steps} make {unrolls} unrolls, but {prefill} fill the replay and each of {s.num_evals} "
            f"evaluations needs one more: use at least {least} steps, fewer num_envs or fewer num_evals"
        )
    return problems


def _seed_violations(s: Settings) -> list[str]:
    """Check the pool's seeds, as far as can be seen without the file."""
    if s.pool_seed is None:
        idle = [name for name in ("pool_seed_fraction", "pool_seed_sha256") if getattr(s, name) is not None]
        idle += ["pool_seed_in_critic"] * s.pool_seed_in_critic
        return [f"{name} is about seeds, but there is no pool_seed: name the file, or leave it out" for name in idle]
    fraction = _default(s.pool_seed_fraction, SEED_FRACTION)
    if not 0.0 < fraction <= 1.0:  # `range_violations` says so
        return []
    problems = []
    if s.pool_size >= 1 and round(fraction * s.pool_size) < 1:
        problems.append(
            f"pool_seed_fraction {fraction} of pool_size {s.pool_size} is below one slot: raise one of them"
        )
    if s.pool_seed_in_critic and s.batch_size >= 2 and not 1 <= round(fraction * s.batch_size) < s.batch_size:
        problems.append(
            f"pool_seed_fraction {fraction} of batch_size {s.batch_size} leaves the critic no seed or nothing else: "
            "use a share between"
        )
    return problems


def _whole(amount: int, of: int) -> int:
    """Return how many make up at least this amount, in exact arithmetic."""
    return -(-amount // of)

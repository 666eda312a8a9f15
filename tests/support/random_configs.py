"""Random settings: of every kind for the checks, and small ones that hold together for the trainer."""

import dataclasses
from typing import Any

from hypothesis import strategies as st

from dcp.config import Settings, field_kinds
from dcp.critics.contrastive import CONTRASTIVE_LOSSES, ENERGIES
from dcp.envs.registry import ENVIRONMENTS
from dcp.methods.scores import SCORES
from dcp.methods.table import PAPER
from dcp.networks import ACTIVATIONS
from dcp.presets import preset_overrides
from tests.support.installed import INSTALLED

Values = dict[str, Any]

POINT_MAZES = sorted(name for name in ENVIRONMENTS if name.startswith("point_"))
MAZES_TO_TRAIN_IN = [name for name in POINT_MAZES if not name.endswith("_eval")]
ABSENT = "absent"  # a module that does not exist

# What someone may mean: right on its own, though not always beside the others.
ORDINARY: dict[str, st.SearchStrategy[Any]] = {
    "env": st.sampled_from([*POINT_MAZES, *sorted(INSTALLED)]),
    "method": st.sampled_from(PAPER),
    "seed": st.integers(0, 2**32 - 1),
    "steps": st.integers(10**6, 10**10),
    "eval_env": st.one_of(st.none(), st.sampled_from(["point_u_maze", "point_u_maze_eval", "ant_u_maze_eval"])),
    "fidelity": st.sampled_from(["paper", "fixed"]),
    "physics": st.sampled_from(["brax", "brax", "brax", "mujoco"]),
    "randomize": st.sampled_from([None, None, None, None, "all", "gains,delay"]),
    "actor_goal": st.sampled_from([None, "future", "commanded", "mixed"]),
    "control": st.sampled_from(["joints", "joints", "joints", "joints", "tool"]),
    "critic": st.sampled_from([None, "contrastive"]),
    "command": st.sampled_from([None, "final_goal", "pooled_subgoal"]),
    "condition": st.sampled_from([None, "raw_goal", "direction"]),
    "component_settings": st.just({}),
    "network": st.just("mlp"),
    "pool_size": st.integers(32, 4096),
    "num_candidates": st.integers(1, 40),
    "subgoal_period": st.integers(1, 10_000),
    "pool_refresh_steps": st.one_of(st.none(), st.integers(1, 10**6)),
    "score": st.sampled_from(list(SCORES)),
    "final_goal_share": st.floats(0.0, 1.0),
    "pool_seed": st.sampled_from([None, None, "no_such_file.npz", __file__]),
    "pool_seed_fraction": st.one_of(st.none(), st.floats(0.01, 1.0)),
    "pool_seed_in_critic": st.booleans(),
    "pool_seed_sha256": st.sampled_from([None, "0" * 64]),
    "data": st.sampled_from([None, None, "no_such_file.npz", __file__]),
    "data_share": st.one_of(st.none(), st.floats(0.01, 1.0)),
    "data_sha256": st.sampled_from([None, None, "0" * 64]),
    "num_envs": st.sampled_from([1, 2, 16, 64, 128, 512, 513, 1024]),
    "devices": st.sampled_from([None, 1, 1, 2]),
    "split_batches": st.sampled_from([None, "on", "off"]),
    "episode_length": st.one_of(st.none(), st.integers(2, 1001)),
    "unroll_length": st.integers(1, 600),
    "action_chunk": st.sampled_from([1, 1, 2, 3]),
    "window": st.sampled_from([None, 2, 33, 65, 129, 250, 257, 500]),
    "batch_size": st.sampled_from([2, 8, 16, 64, 100, 256]),
    "updates_per_iteration": st.sampled_from([None, None, 1, 5, 800]),
    "replay_rows": st.integers(400, 20_000),
    "min_replay_rows": st.integers(1, 500),
    "num_evals": st.integers(1, 60),
    "eval_episodes": st.integers(1, 512),
    "discount": st.floats(0.0, 1.0, exclude_min=True, exclude_max=True),
    "hindsight": st.sampled_from([None, None, "her", "uniform", "future"]),
    "normalize": st.sampled_from(["none", "none", "running"]),
    "noise_hold": st.sampled_from([1, 1, 4]),
    "average_weights": st.sampled_from([0, 0, 3]),
    "actor_learning_rate": st.floats(1e-8, 1.0),
    "critic_learning_rate": st.floats(1e-8, 1.0),
    "alpha_learning_rate": st.floats(1e-8, 1.0),
    "energy": st.sampled_from(list(ENERGIES)),
    "contrastive_loss": st.sampled_from(list(CONTRASTIVE_LOSSES)),
    "logsumexp_penalty": st.one_of(st.just(0), st.floats(0.0, 10.0)),
    "target_entropy_scale": st.one_of(st.integers(0, 2), st.floats(0.0, 10.0)),
    "action_change_penalty": st.sampled_from([0.0, 0.0, 0.5]),
    "width": st.integers(1, 1024),
    "depth": st.integers(1, 64),
    "repr_dim": st.integers(1, 512),
    "activation": st.sampled_from(list(ACTIVATIONS)),
    "layer_norm": st.booleans(),
    "residual_every": st.sampled_from([0, 0, 1, 2, 4]),
}

EDGES = [-(2**70), -(2**31), -2, -1, 0, 1, 2, 3, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 10**30, 10**400]
ODD_FLOATS = [0.0, -0.0, 1.0, -1.0, 5e-324, 1e-300, 1.0 - 2**-53, 1.0 + 2**-52, 1e39, 1.8e308]
NEAR_MISSES = [
    "", " ", "dpc", "DCP", "dcp ", "crl\n", "point_umaze", "point_u_maze_", "ant", "ant_u_maze_evil", "inner", "cosin",
    "norm2", "backwards", "gelu", "fixd", "Paper", "past", "-1", "--seed", "nan", "None", "a" * 400, "\x00", "\udcff",
    "ä→", f"{ABSENT}:make", ":", "json:", ":x", "..:x", "json:loads", "../..", "/",
]  # fmt: skip
ANYTHING = st.one_of(
    st.none(), st.booleans(), st.sampled_from(EDGES), st.integers(), st.floats(), st.sampled_from(ODD_FLOATS),
    st.sampled_from(NEAR_MISSES), st.text(max_size=8), st.just([1]), st.just({}), st.just(b"dcp"), st.just(object),
)  # fmt: skip


def odd(name: str) -> st.SearchStrategy[Any]:
    """On the edges and beyond them; mostly of the right type, so that the range is what is judged."""
    kinds = field_kinds()[name]
    if str in kinds:
        return st.one_of(st.sampled_from(NEAR_MISSES), ANYTHING)
    if float in kinds:
        return st.one_of(st.sampled_from(ODD_FLOATS), st.floats(), ANYTHING)
    return st.one_of(st.sampled_from(EDGES), st.integers(-3, 3000), ANYTHING)


ODD = {name: odd(name) for name in ORDINARY}
NAMES = st.sampled_from(sorted(ORDINARY))
SOME = st.lists(NAMES, max_size=5, unique=True)
FEW = st.one_of(st.just([]), st.lists(NAMES, max_size=2, unique=True))
PRESET = st.sampled_from([None, "smoke", "laptop"])


@st.composite
def any_values(draw: st.DrawFn) -> Values:
    """Some ordinary settings over the defaults or a preset, and in half of the cases something odd."""
    preset = draw(PRESET)
    values: Values = dict(preset_overrides(preset)) if preset else {}
    for name in draw(SOME):
        values[name] = draw(ORDINARY[name])
    for name in draw(FEW):
        values[name] = draw(ODD[name])
    return values


def as_flags(values: Values) -> list[str]:
    """The same settings as someone would type them. None cannot be typed: it is the default."""
    flags: list[str] = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool) and field_kinds()[name] == {bool}:
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            flags += [f"--{flag}", str(value)] if hash(name) % 2 else [f"--{flag}={value}"]
    return flags


def can_be_typed(values: Values) -> bool:
    """Whether the command line can say exactly this: each value of its field's own type. The word None is no text, and
    where a fraction may be meant a whole number is read as one."""

    def said(name: str, value: Any) -> bool:
        kinds = field_kinds()[name]
        return type(value) in kinds and value != "None" and not (type(value) is int and float in kinds)

    return all(said(name, value) for name, value in values.items())


@st.composite
def trainable_values(draw: st.DrawFn) -> Values:
    """Tiny, whole and consistent: the least budget that fills the replay, updates and evaluates once.

    Hypothesis draws one seed alone, so that a few examples differ in every field: nothing is shrunk here anyway.
    """
    random = draw(st.randoms(use_true_random=True))
    whole = random.randint

    def of(*choices: Any) -> Any:
        return random.choice(choices)

    env = of(*MAZES_TO_TRAIN_IN)
    num_envs, window, unroll = whole(1, 6), whole(3, 9), whole(1, 8)
    pairs = num_envs * (window - 1)
    depth, pool = whole(1, 3), whole(1, 20)
    min_rows = whole(1, 12)
    rate = of(1e-8, 3e-4, 1e-2)
    values: Values = {
        "env": env,
        "method": of(*PAPER),
        "seed": of(0, 1, 2**31, 2**32 - 1),
        "eval_env": of(None, f"{env}_eval") if f"{env}_eval" in ENVIRONMENTS else None,
        "fidelity": of("paper", "fixed"),
        "physics": "brax",
        "control": "joints",
        "randomize": None,  # points have none; bodies train in tests of their own
        "actor_goal": of(None, "future", "commanded"),
        "pool_size": pool,
        "num_candidates": whole(1, pool),
        "subgoal_period": of(1, 3, 25, 2**31 - 1),
        "pool_refresh_steps": of(None, 1, 5, 2**31 - 1),
        "score": of(*SCORES),
        "final_goal_share": of(0.0, 0.3, 1),
        "pool_seed": None,  # what is seeded trains in tests of its own
        "pool_seed_fraction": None,
        "pool_seed_in_critic": False,
        "pool_seed_sha256": None,
        "data": None,  # and so do data
        "data_share": None,
        "data_sha256": None,
        "num_envs": num_envs,
        "action_chunk": of(1, 1, 2),
        "devices": of(None, 1),
        "split_batches": of(None, "on", "off"),
        "episode_length": whole(2, 12),
        "unroll_length": unroll,
        "window": window,
        "batch_size": of(*(size for size in range(2, pairs + 1) if pairs % size == 0)),
        "updates_per_iteration": of(None, 1),
        "replay_rows": max(unroll, window, min_rows) + of(0, 1, 10),
        "min_replay_rows": min_rows,
        "num_evals": 1,
        "eval_episodes": whole(1, 4),
        "discount": of(5e-324, 0.5, 0.99, 1.0 - 2**-53),
        "actor_learning_rate": rate,
        "critic_learning_rate": of(rate, 3e-4),
        "alpha_learning_rate": rate,
        "energy": of(*ENERGIES),
        "contrastive_loss": of(*CONTRASTIVE_LOSSES),
        "logsumexp_penalty": of(0, 0.1, 5.0),
        "target_entropy_scale": of(0, 0.5, 3.0),
        "width": whole(1, 12),
        "depth": depth,
        "repr_dim": whole(1, 9),
        "activation": of(*ACTIVATIONS),
        "layer_norm": of(False, True),
        "residual_every": whole(0, depth - 1),
    }
    prefill = Settings(**values).num_prefill_unrolls
    return {**values, "steps": (prefill + 1) * num_envs * unroll}


FIELDS = {field.name for field in dataclasses.fields(Settings)}

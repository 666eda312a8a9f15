"""One update at the ant's sizes: ours against the textbook form.

The textbook form holds the [B, B, D] differences and jits each loss and each optimizer step on its own; both forms
report the same metrics.
`ours` is the update as training runs it, a scan of whole updates; `ours_single` is one jitted call per update.
`floor`: the update's own products, as XLA compiled them, by NumPy's BLAS on one thread, divided by the cores: the time
of its arithmetic alone, if nothing were lost between the cores.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for the floor; XLA has threads of its own

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

sys.path.insert(0, str(Path(__file__).parent))
from timing import in_turns, report

from dcp.actor import actor_heads
from dcp.config import Config, cores
from dcp.critics.contrastive import Contrastive
from dcp.learner import Learner, LearnerParams, LearnerState
from dcp.machine.compiling import EIGEN_DOTS, compiler_options
from dcp.methods.table import make_agent
from dcp.types import Array, Batch, EnvSpec

ANT = EnvSpec("ant", state_size=29, goal_size=2, action_size=8, goal_dims=(0, 1), threshold=0.5, episode_length=1000)
UPDATES = 50


def make_learner(method: str) -> Learner:
    config = Config(method=method).resolve(ANT.episode_length)
    agent = make_agent(config, ANT)
    return Learner(config, ANT, agent)


def random_batch(size: int, key: Array) -> Batch:
    keys = jax.random.split(key, 4)
    state, action = jax.random.normal(keys[0], (size, 29)), jax.random.uniform(keys[1], (size, 8), minval=-1.0)
    return Batch(state, action, jax.random.normal(keys[2], (size, 2)), jax.random.normal(keys[3], (size, 2)))


def textbook(learner: Learner):
    """-> init(params), update(params, optimizer states, batch, key): the same maths, written plainly. CRL."""
    adam, problem = optax.adam(3e-4), learner.problem
    critic = learner.agent.critic
    assert isinstance(critic, Contrastive)
    psi_sa_of, psi_g_of = partial(critic.psi_sa, problem), partial(critic.psi_g, problem)
    target_entropy = -0.5 * ANT.action_size

    def critic_loss(encoders, batch):
        psi_sa, psi_g = psi_sa_of(encoders, batch.state, batch.action), psi_g_of(encoders, batch.future_goal)
        differences = psi_sa[:, None, :] - psi_g[None, :, :]  # [B, B, D]
        logits = -jnp.sqrt(jnp.sum(differences**2, axis=-1) + 1e-6)  # [B, B]
        infonce = -jnp.mean(jnp.diag(logits) - jax.nn.logsumexp(logits, axis=0))
        accuracy = jnp.mean(jnp.argmax(logits, axis=1) == jnp.arange(logits.shape[0]))
        return infonce + 0.1 * jnp.mean(jax.nn.logsumexp(logits, axis=1) ** 2), (infonce, accuracy)

    def sample(actor, batch, key):
        mean, log_std = actor_heads(learner.network, actor, batch.state, batch.future_goal)
        noise = jax.random.normal(key, mean.shape)
        action = jnp.tanh(mean + jnp.exp(log_std) * noise)
        log_prob = jax.scipy.stats.norm.logpdf(mean + jnp.exp(log_std) * noise, mean, jnp.exp(log_std))
        return action, jnp.sum(log_prob - jnp.log(1 - action**2 + 1e-6), axis=-1)

    def actor_loss(actor, encoders, log_alpha, batch, key):
        action, log_prob = sample(actor, batch, key)
        psi_sa, psi_g = psi_sa_of(encoders, batch.state, action), psi_g_of(encoders, batch.future_goal)
        energy = -jnp.sqrt(jnp.sum((psi_sa - psi_g) ** 2, axis=-1) + 1e-6)
        return jnp.mean(jnp.exp(log_alpha) * log_prob - energy), -jnp.mean(log_prob)

    def alpha_loss(log_alpha, actor, batch, key):
        return jnp.exp(log_alpha) * jnp.mean(-sample(actor, batch, key)[1] - target_entropy), jnp.exp(log_alpha)

    gradients = [jax.jit(jax.value_and_grad(loss, has_aux=True)) for loss in (actor_loss, critic_loss, alpha_loss)]

    @jax.jit
    def apply(params, state, gradient):
        steps, state = adam.update(gradient, state)
        return optax.apply_updates(params, steps), state

    def init(params: LearnerParams):
        return tuple(adam.init(part) for part in params)

    def update(params: LearnerParams, states, batch: Batch, key: Array):
        _, actor_gradient = gradients[0](params.actor, params.critic, params.log_alpha, batch, key)
        _, alpha_gradient = gradients[2](params.log_alpha, params.actor, batch, key)
        _, encoder_gradient = gradients[1](params.critic, batch)
        actor, actor_state = apply(params.actor, states[0], actor_gradient)
        log_alpha, alpha_state = apply(params.log_alpha, states[2], alpha_gradient)
        encoders, encoder_state = apply(params.critic, states[1], encoder_gradient)
        return LearnerParams(actor, encoders, log_alpha), (actor_state, encoder_state, alpha_state)

    return init, update


def check_equal(learner: Learner, batch: Batch, key: Array) -> float:
    """The same maths first: largest difference of the gradients, as a share of each array's largest gradient.

    Adam's first moment after one update is a tenth of the gradient, in both forms.
    """
    state = learner.init(jax.random.key(0))
    init, update = textbook(learner)
    ours = optax.tree.get(jax.jit(learner.update)(state, batch, key)[0].optimizer, "mu")
    plain = LearnerParams(*(optax.tree.get(s, "mu") for s in update(state.params, init(state.params), batch, key)[1]))
    gaps = jax.tree.map(lambda a, b: float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))), ours, plain)
    gap = max(jax.tree.leaves(gaps))
    assert gap < 1e-3, gap
    return gap


def products(learner: Learner, batch: Batch, key: Array) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return factors like those of every product of an update's compiled program, laid out as there, and room."""
    program = jax.jit(learner.update, compiler_options=EIGEN_DOTS)
    text = str(program.lower(learner.init(jax.random.key(0)), batch, key).compile().as_text())
    shapes = dict(re.findall(r"%?([\w.\-]+) = f32\[([\d,]+)\]", text))
    dots = r" dot\(%?([\w.\-]+), %?([\w.\-]+)\), lhs_contracting_dims=\{(\d)\}, rhs_contracting_dims=\{(\d)\}"
    random, factors = np.random.default_rng(0), []
    for *names, left, right in re.findall(dots, text):
        one, other = (
            random.normal(size=[int(n) for n in shapes[name].split(",")]).astype(np.float32) for name in names
        )
        one, other = one if left == "1" else one.T, other if right == "0" else other.T
        factors.append((one, other, one @ other))
    return factors


def main() -> None:
    learner, dcp = make_learner("crl"), make_learner("dcp")
    batches = random_batch(UPDATES * 256, jax.random.key(1))
    keys = jax.random.split(jax.random.key(2), UPDATES)
    first = jax.tree.map(lambda x: x[:256], batches)
    gap = check_equal(learner, first, keys[0])

    def scanned(learner: Learner, options: Any):
        def run(state: LearnerState) -> LearnerState:
            stacked = jax.tree.map(lambda x: x.reshape(UPDATES, 256, -1), batches)
            noise = jax.vmap(learner.noise, in_axes=(0, None))(keys, 256)
            return jax.lax.scan(lambda s, x: learner.step(s, *x), state, (stacked, noise))[0]

        jitted, state = jax.jit(run, compiler_options=options), learner.init(jax.random.key(0))
        return lambda: jitted(state)

    single = jax.jit(learner.update, compiler_options=compiler_options())

    def ours_single() -> LearnerState:
        state = learner.init(jax.random.key(0))
        for key in keys:
            state, _ = single(state, first, key)
        return state

    init, update = textbook(learner)

    def plain() -> LearnerParams:
        params = learner.init(jax.random.key(0)).params
        states = init(params)
        for key in keys:
            params, states = update(params, states, first, key)
        return params

    factors = {method: products(made, first, keys[0]) for method, made in (("crl", learner), ("dcp", dcp))}

    def multiply(method: str) -> list[np.ndarray]:
        return [np.matmul(*product[:2], out=product[2]) for _ in range(UPDATES) for product in factors[method]]

    forms: dict[str, Any] = {
        "textbook": plain,
        "ours": scanned(learner, compiler_options()),
        "ours_xla_default": scanned(learner, None),
        "ours_single": ours_single,
        "ours_dcp": scanned(dcp, compiler_options()),
    }
    forms |= {"blas": partial(multiply, "crl"), "blas_dcp": partial(multiply, "dcp")}
    times = {f"{name}_ms": 1e3 * s / UPDATES for name, s in in_turns(forms, rounds=7).items()}
    ratio = times["textbook_ms"] / times["ours_ms"]
    floor, floor_dcp = (times.pop(name) / cores() for name in ("blas_ms", "blas_dcp_ms"))
    report(
        ratio=ratio,
        **times,
        floor_ms=floor,
        floor_dcp_ms=floor_dcp,
        times_floor=times["ours_ms"] / floor,
        times_floor_dcp=times["ours_dcp_ms"] / floor_dcp,
        ratio_single=times["textbook_ms"] / times["ours_single_ms"],
        largest_gradient_difference=f"{gap:.1e}",
    )


if __name__ == "__main__":
    main()

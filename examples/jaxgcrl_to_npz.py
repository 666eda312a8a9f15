"""Turn a checkpoint of JaxGCRL's CRL agent into an NPZ that dcp evaluates, without dcp reading a pickle.

JaxGCRL (0.2.8) saves (alpha, actor, critic) parameters as a pickle, and whoever loads a pickle runs what is in it. So
run this in the environment that made the checkpoint, on your own files only. It needs NumPy there, and whatever the
pickle needs (JAX and Flax), but not dcp:

    python jaxgcrl_to_npz.py CHECKPOINT_LOGDIR/step_50000000.pkl --env ant_u_maze --out crl.npz

    dcp eval crl.npz --env ant_u_maze     # in dcp's environment, on the episodes of every other policy

The file has the form of `dcp export --format numpy`: the actor's layers and a JSON of sizes. The two encoders are there
too, as sa_encoder/<layer>/kernel and g_encoder/<layer>/kernel, which dcp does not read.
"""

import argparse
import json
import pickle

import numpy as np

# goal_indices of the environments that both projects have
GOAL_DIMS = {
    "ant_u_maze": (0, 1),
    "ant_big_maze": (0, 1),
    "ant_hardest_maze": (0, 1),
    "humanoid_u_maze": (0, 1, 2),
    "humanoid_big_maze": (0, 1, 2),
    "humanoid_hardest_maze": (0, 1, 2),
    "humanoid": (0, 1, 2),
    "ant_push": (0, 1),
    "ant_ball": (29, 30),
    "pusher_easy": (10, 11, 12),
    "pusher_hard": (10, 11, 12),
}
OUR_NAMES = {"ant_ball": "ant_soccer"}


def dense_layers(params):
    """Return the kernels and biases of Dense_0, Dense_1, ... in their order."""
    params = params["params"]
    names = sorted((name for name in params if name.startswith("Dense_")), key=lambda name: int(name[len("Dense_") :]))
    return [{part: np.asarray(params[name][part], np.float32) for part in ("kernel", "bias")} for name in names]


def converted(actor, critic, env, use_relu, skip_connections):
    """Return the arrays of the NPZ. JaxGCRL's actor ends in two heads, mean and log_std; a policy needs the mean."""
    *hidden, mean, _log_std = dense_layers(actor)
    goal_dims = GOAL_DIMS[env]
    (inputs, _), (_, actions) = hidden[0]["kernel"].shape, mean["kernel"].shape
    states = inputs - len(goal_dims)
    activation = "relu" if use_relu else "swish"
    layers = [
        {
            "norm": False,  # JaxGCRL 0.2.8 passes use_ln to the encoders only
            "activation": activation,
            "residual": bool(skip_connections) and number > 0 and number % skip_connections == 0,
        }
        for number in range(len(hidden))
    ]
    metadata = {
        "format": "dcp.exported_policy",
        "schema_version": 1,
        "inputs": {"state": ["batch", states], "goal": ["batch", len(goal_dims)]},
        "outputs": {"action": ["batch", actions]},
        "state_size": states,
        "goal_size": len(goal_dims),
        "action_size": actions,
        "goal_dims": list(goal_dims),
        "condition": "raw_goal",
        "burst": None,
        "norm_epsilon": 1e-6,
        "networks": {"actor": [*layers, {"norm": False, "activation": None, "residual": False}]},
        "about": {"env": OUR_NAMES.get(env, env), "method": "JaxGCRL CRL"},
    }
    arrays = {"dcp": np.array(json.dumps(metadata))}
    for name, dense in (
        ("actor", [*hidden, mean]),
        ("sa_encoder", dense_layers(critic["sa_encoder"])),
        ("g_encoder", dense_layers(critic["g_encoder"])),
    ):
        for number, layer in enumerate(dense):
            arrays.update({f"{name}/{number}/{part}": array for part, array in layer.items()})
    return arrays


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="a file of --checkpoint_logdir: step_<n>.pkl")
    parser.add_argument("--env", required=True, choices=sorted(GOAL_DIMS), help="JaxGCRL's name of the environment")
    parser.add_argument("--use_relu", action="store_true", help="if the run had it")
    parser.add_argument("--skip_connections", type=int, default=4, help="the run's; JaxGCRL's default is 4")
    parser.add_argument("--out", default="policy.npz")
    args = parser.parse_args(arguments)
    with open(args.checkpoint, "rb") as file:
        _alpha, actor, critic = pickle.load(file)  # runs code of the file: only your own
    arrays = converted(actor, critic, args.env, args.use_relu, args.skip_connections)
    np.savez(args.out, **arrays)  # pyright: ignore[reportArgumentType]
    print(f"wrote {args.out}: dcp eval {args.out} --env {OUR_NAMES.get(args.env, args.env)}")


if __name__ == "__main__":
    main()

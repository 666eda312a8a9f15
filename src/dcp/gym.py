"""Our environments in Gymnasium's registry: `import dcp.gym`, then `gymnasium.make("dcp/AntUMaze-v0")`.

Gymnasium 1.0 dropped its entry-point plugins, so ids are known once a module that registers them is imported. This one
imports no JAX; the environments themselves are imported by the first `make`.
"""

from gymnasium.envs import registration

# Written out, because the registry of environments needs JAX. A test holds this table to it.
_POINTS = (
    *("point_u_maze", "point_u_maze_inertia", "point_big_maze", "point_big_maze_inertia"),
    *("point_hardest_maze", "point_hardest_maze_inertia", "point_u_maze_eval", "point_u_maze_inertia_eval"),
    *("point_big_maze_eval", "point_big_maze_inertia_eval", "point_soccer", "point_soccer_slick", "point_push"),
    *("point_u4_maze", "point_u4_maze_inertia", "point_u4_maze_eval", "point_u4_maze_inertia_eval"),
    *("point_u5_maze", "point_u5_maze_inertia", "point_u5_maze_eval", "point_u5_maze_inertia_eval"),
)
_BODIES = (
    *("ant_u_maze", "ant_big_maze", "ant_hardest_maze", "humanoid_u_maze", "humanoid_big_maze"),
    *("humanoid_hardest_maze", "ant_u_maze_eval", "ant_big_maze_eval", "humanoid_u_maze_eval"),
    *("ant_u4_maze", "ant_u5_maze", "humanoid_u4_maze", "humanoid_u5_maze", "humanoid"),
    *("ant_u4_maze_eval", "ant_u5_maze_eval", "humanoid_u4_maze_eval", "humanoid_u5_maze_eval"),
    *("humanoid_big_maze_eval", "ant_push", "ant_soccer", "pusher_easy", "pusher_hard", "pusher_hard_far"),
    *("pusher_hard_far_any", "pusher_hard_near"),
)
_ARM = {"so101_reach": 100, "so101_reach_pose": 100, "so101_push": 150, "so101_lift": 150}
_FETCH = dict.fromkeys(("fetch_reach", "fetch_push", "fetch_slide", "fetch_pick_and_place"), 50)
EPISODE_STEPS = dict.fromkeys(_POINTS, 250) | dict.fromkeys(_BODIES, 1000) | _ARM | _FETCH


def gymnasium_id(name: str) -> str:
    """Return the id of an environment: ant_u_maze -> dcp/AntUMaze-v0."""
    return f"dcp/{''.join(word.capitalize() for word in name.split('_'))}-v0"


def register() -> None:
    """Register every environment of `dcp envs`. A second call changes nothing."""
    for name, steps in EPISODE_STEPS.items():
        if (id_ := gymnasium_id(name)) not in registration.registry:
            registration.register(
                id_,
                entry_point="dcp.interop.goal_env:GoalEnv",
                vector_entry_point="dcp.interop.goal_env:GoalVectorEnv",
                max_episode_steps=steps,
                kwargs={"env": name},
            )


register()

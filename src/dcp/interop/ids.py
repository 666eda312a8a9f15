"""The Gymnasium ids of our environments. Neither JAX nor Gymnasium is imported here: ids must cost nothing."""

# Written out, because the registry of environments needs JAX. A test holds this table to it.
_POINTS = (
    "point_u_maze",
    "point_u_maze_inertia",
    "point_big_maze",
    "point_big_maze_inertia",
    "point_hardest_maze",
    "point_hardest_maze_inertia",
    "point_u_maze_eval",
    "point_u_maze_inertia_eval",
    "point_big_maze_eval",
    "point_big_maze_inertia_eval",
    "point_soccer",
    "point_soccer_slick",
    "point_push",
)
_BODIES = (
    "ant_u_maze",
    "ant_big_maze",
    "ant_hardest_maze",
    "humanoid_u_maze",
    "humanoid_big_maze",
    "humanoid_hardest_maze",
    "ant_u_maze_eval",
    "ant_big_maze_eval",
    "humanoid_u_maze_eval",
    "humanoid_big_maze_eval",
    "ant_push",
    "ant_soccer",
    "pusher_easy",
    "pusher_hard",
    "pusher_hard_far",
)
EPISODE_STEPS = dict.fromkeys(_POINTS, 250) | dict.fromkeys(_BODIES, 1000)


def gymnasium_id(name: str) -> str:
    """ant_u_maze -> dcp/AntUMaze-v0"""
    return f"dcp/{''.join(word.capitalize() for word in name.split('_'))}-v0"

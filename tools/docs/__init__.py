"""Make the figures, tables and data of docs/. From the repository's root each runs as `python -m tools.docs.NAME`.

Runs and their results: `point_maze_runs`, `point_mazes`, `point_soccer`, `soccer_seeds`, `critics`, `paper_10m`,
`single_seeds`, `success_per_minute`, `iteration_cost`, `ant_u4`, `touching`, `engine_differences`. Pictures:
`environment_pictures`, `conditioning_figure`, `explore_recording`. Trained policies of the package: `zoo`.
"""

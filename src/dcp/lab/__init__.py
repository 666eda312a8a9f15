"""What people do with runs and policies after training: measure, compare, draw, show.

    targets            opens what a user names: a run folder, a policy file, the zoo, an export, a function
    trial, episodes    play frozen episodes: to measure them (`dcp eval`), or to show them
    run_collection     reads run folders and groups their seeds; statistics has every interval and test
    *_tables, *_values    turn results into tables; result_tables holds tables as data and writes them
    curves, compare_runs, landscape_figure, pusher_goals    draw figures; style says how each of them looks
    build_report       makes the one page of `dcp report` out of all these; report_html writes its HTML
    psi_landscape      compares distances in psi-space with a maze's own (`dcp landscape`)
    diagnose/          measures the theorems' quantities on a trained agent (`dcp diagnose`)
    render/            shows episodes: pictures, videos, interactive pages (`dcp render`, `dcp explore`)
    offscreen          finds the OpenGL backend that MuJoCo can draw with
    pages/             the pages' templates, styles and scripts, and what puts them into one file

Nothing here trains, and nothing that trains is imported.
"""

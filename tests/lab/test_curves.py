import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_allclose, assert_array_equal

from dcp.errors import UserError
from dcp.lab.curves import methods_figure, over_seeds, plot_methods
from dcp.lab.style import colours, human_count, save


def columns(success, time, steps=None):
    steps = 100_000 * np.arange(1, len(success) + 1) if steps is None else steps
    return {"env_steps": np.array(steps), "success_once": np.array(success), "time_near_goal": np.array(time)}


def run_figure(run):
    return methods_figure({"dcp": [run]}, "a run")


def lines(axes):
    return [np.asarray(line.get_xydata()) for line in axes.lines]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (750, "750"), (500_000, "500k"), (1_000_000, "1M"), (1_250_000, "1.25M"), (2e9, "2B")],
)
def test_steps_are_written_for_people(number, text):
    assert human_count(number) == text


def test_both_metrics_are_drawn_and_success_is_in_percent():
    figure = run_figure(columns([0.25, 0.5], [3.0, 9.0]))
    success, time = figure.axes
    assert_allclose(lines(success), [[[100_000, 25.0], [200_000, 50.0]]])
    assert_allclose(lines(time), [[[100_000, 3.0], [200_000, 9.0]]])
    assert success.get_ylabel() == "Success at least once (%)"


def test_a_gap_in_the_record_stays_a_gap(tmp_path):
    figure = run_figure(columns([0.25, np.nan, 0.5], [np.nan] * 3))
    assert_array_equal(lines(figure.axes[0])[0][:, 1], [25.0, np.nan, 50.0])
    assert save(figure, tmp_path / "curve.png").stat().st_size > 0


def test_one_evaluation_is_one_visible_dot(tmp_path):
    figure = run_figure(columns([0.25], [3.0]))
    assert len(lines(figure.axes[0])[0]) == 1
    assert figure.axes[0].lines[0].get_marker() == "o"
    assert save(figure, tmp_path / "curve.png").stat().st_size > 0


def test_a_metric_that_was_not_recorded_has_no_panel():
    run = columns([0.25], [3.0])
    del run["time_near_goal"]
    assert len(run_figure(run).axes) == 1
    with pytest.raises(UserError, match="nothing to plot"):
        run_figure({"env_steps": np.array([1.0])})


def test_steps_that_were_not_recorded_are_a_mistake():
    with pytest.raises(UserError, match="env_steps"):
        run_figure({"success_once": np.array([0.5])})


def test_seeds_become_a_mean_a_band_and_thin_lines():
    axes = Figure().add_subplot()
    seeds = [columns([0.0, 0.25], [0, 0]), columns([0.5, 0.75], [0, 0]), columns([0.25, 0.5], [0, 0])]
    plot_methods(axes, {"dcp": seeds}, "success_once")
    seed_0, seed_1, _, mean = lines(axes)
    assert_allclose(seed_0[:, 1], [0, 25])
    assert_allclose(seed_1[:, 1], [50, 75])
    assert_allclose(mean[:, 1], [25, 50])
    (band,) = axes.collections
    # s = 25; t(0.975, 2) = 4.30265
    assert_allclose(band.get_datalim(axes.transData).y1, 50 + 4.30265 * 25 / np.sqrt(3), rtol=1e-5)
    assert axes.lines[0].get_linewidth() < axes.lines[3].get_linewidth()


def test_two_seeds_have_lines_and_no_band():
    together = over_seeds([columns([0.0, 0.25], [0, 0]), columns([0.5, 0.75], [0, 0])], "success_once")
    assert_allclose(together.mean, [25, 50])
    assert np.isnan(together.half_width).all()


def test_one_seed_has_no_band():
    axes = Figure().add_subplot()
    plot_methods(axes, {"dcp": [columns([0.0, 0.25], [0, 0])]}, "success_once")
    assert len(axes.collections) == 0
    assert len(axes.lines) == 1


def test_the_mean_ends_where_the_shortest_seed_ends():
    axes = Figure().add_subplot()
    plot_methods(axes, {"dcp": [columns([0.0, 1.0, 1.0], [0] * 3), columns([0.5], [0])]}, "success_once")
    assert_allclose(lines(axes)[-1], [[100_000, 25.0]])


def test_seeds_without_a_common_step_have_lines_and_no_mean():
    figure = methods_figure({"dcp": [columns([0.0, 0.5], [0, 1]), columns([0.25], [0], steps=[7])]}, "seeds")
    seed_0, seed_1, mean = lines(figure.axes[0])
    assert_allclose(seed_0[:, 1], [0, 50])
    assert_allclose(seed_1, [[7, 25]])
    assert mean.size == 0
    assert "never evaluated at the same step" in figure.axes[0].get_legend_handles_labels()[1][0]


def test_a_nan_of_one_seed_is_a_gap_in_the_mean_alone():
    seeds = [columns(values, [0] * 3) for values in ([0.2, np.nan, 0.6], [0.4, 0.4, 0.4], [0.3, 0.4, 0.5])]
    together = over_seeds(seeds, "success_once")
    assert_allclose(together.mean, [30, np.nan, 50])
    assert_array_equal(np.isnan(together.half_width), [False, True, False])


def timed(success, seconds):
    return columns(success, [0] * len(success)) | {"wall_seconds": np.array(seconds, float)}


def test_over_wall_clock_time_the_mean_stands_at_the_mean_time_of_the_evaluation():
    runs = [timed([0.0, 0.5], [3600, 7200]), timed([0.5, 1.0], [7200, 14400])]
    together = over_seeds(runs, "success_once")
    assert_allclose(together.steps, [100_000, 200_000])
    assert_allclose(together.seconds, [5400, 10800])
    axes = Figure().add_subplot()
    plot_methods(axes, {"dcp": runs}, "success_once", "seconds")
    seed_0, _, mean = lines(axes)
    assert_allclose(seed_0[:, 0], [3600, 7200])
    assert_allclose(mean, [[5400, 25], [10800, 75]])
    assert axes.get_xlabel() == "Wall-clock time (hours)"
    assert axes.xaxis.get_major_formatter()(7200, 0) == "2"


def test_a_run_that_kept_no_time_has_no_line_over_time():
    runs = [columns([0.0, 0.5], [0, 0]), timed([0.5, 1.0], [60, 120])]
    assert np.isnan(over_seeds(runs, "success_once").seconds).all()
    figure = methods_figure({"dcp": runs, "crl": runs[:1]}, "seeds", "seconds")
    assert_allclose(lines(figure.axes[0]), [[[60, 50], [120, 100]]])
    with pytest.raises(UserError, match="no run recorded 'wall_seconds'"):
        methods_figure({"crl": runs[:1]}, "seeds", "seconds")


def test_a_method_keeps_its_colour_whoever_is_beside_it():
    alone, among = colours(["dcp"]), colours(["mine", "crl", "dcp"])
    assert alone["dcp"] == among["dcp"]
    assert len(set(among.values())) == 3

"""Make the paper's burst and saturation tables from `dcp eval`, and those of other interventions.

Mean and population std over trained seeds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dcp.errors import shown
from dcp.lab import paper_values
from dcp.lab.paper_values import Published
from dcp.lab.result_tables import Cell, Row, Section, Table, absent, number
from dcp.lab.run_collection import Collection, EvalRecord, Key, Run, in_order
from dcp.lab.trial import RESULT_SCHEMA

ALL = "all"
STD = "Mean ± population standard deviation over trained seeds, as in the paper; one seed has none."
OVER_ALL = (
    f"{ALL}: over all (environment, seed) pairs; minus {paper_values.BASELINE}'s: over the environments that both have."
)
PAPERS_OVER_ALL = f"The paper's values of {ALL} are over nine environments, and stand beside nine alone."
BOLD = "Bold: a gain above its standard deviation."


Burst = tuple[int, int] | tuple[str, int, int]  # P, L; or an intervention's name, W and L


@dataclass(frozen=True)
class EvalResult:
    """Results of one trained policy on one set of episodes, in percent, without and perhaps also with a burst."""

    environment: str
    method: str
    seed: int  # the policy's: the paper's three seeds are three trained policies
    burst: Burst | None
    reach: float  # episodes that were near their goal at least once
    reach_with_burst: float  # nan without a burst
    saturation: float  # action components beyond 0.95, without a burst
    env_steps: int  # of the policy's training
    episodes: int
    eval_seeds: tuple[int, ...]
    source: str
    plain_method: str  # without the settings that the label names
    apart: tuple[str, ...]  # in what it differs from the paper's final policies

    @property
    def key(self) -> Key:
        return self.environment, self.method

    @property
    def plain(self) -> tuple[Any, ...]:
        """Return what two files have in common if only one of them holds a burst."""
        return self.env_steps, self.episodes, self.eval_seeds, self.reach, self.saturation

    @property
    def gain(self) -> float:
        """Return the gain; exactly 0 for a tie, because equal shares may differ by rounding."""
        return round(self.reach_with_burst - self.reach, 9)


def eval_results(collection: Collection) -> tuple[list[EvalResult], list[str]]:
    """Return the results, and a sentence for each file that could not be used."""
    results, unused = [], []
    pairs = [(run, record) for run in collection.runs for record in run.evals]
    for run, record in pairs:
        if reason := _unfit(record, run):
            unused.append(f"{record.path}: {reason}.")
            continue
        try:
            results.append(_result(record, run))
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            unused.append(f"{record.path}: not a result that this version can read ({shown(error)}).")
    return results, unused


def one_each(results: list[EvalResult]) -> tuple[list[EvalResult], list[str]]:
    """Choose one per run: of its latest policy, with most episodes, then the first by file name.

    -> those, and a sentence for each that was left out
    """
    chosen: dict[tuple[str, str, int], EvalResult] = {}
    left = []
    for result in sorted(results, key=lambda r: (-r.env_steps, -r.episodes, r.source)):
        identity = (*result.key, result.seed)
        other = chosen.get(identity)
        if other is not None and _kind(result) != _kind(other) and result.plain == other.plain:
            continue  # files of the same episodes with a burst, with an intervention, and without
        if other is not None:
            left.append(f"{result.source}: left out, because {other.source} belongs to the same run.")
        else:
            chosen[identity] = result
    return sorted(chosen.values(), key=lambda r: r.seed), left


def _kind(result: EvalResult) -> str:
    return "" if result.burst is None else str(result.burst[0]) if len(result.burst) == 3 else "burst"


def _unfit(record: EvalRecord, run: Run) -> str:
    """Return why a result does not count; empty if it does."""
    content = record.content
    if (version := content.get("schema_version", RESULT_SCHEMA)) != RESULT_SCHEMA:
        return f"schema_version {shown(version)}, and this version reads {RESULT_SCHEMA}"
    if not run.config:
        return "in a run that cannot be read"
    if any(record.about.get(name) != run.config[name] for name in ("env", "method", "seed")):
        return "of a policy of another run"
    if content.get("burst_first"):
        return "a burst in the first steps of each period, where the others are in the last"
    if (physics := content.get("physics", "brax")) != run.config["physics"]:
        return f"stepped by {shown(physics)}, unlike the run itself"
    if content.get("stochastic"):
        return "with actions drawn at random, unlike the paper's deployment"
    return ""


def _result(record: EvalRecord, run: Run) -> EvalResult:
    content, burst = record.content, _burst_of(record.content)
    plain = content if burst is None else content["without_burst" if len(burst) == 2 else "without_intervention"]
    trained, evaluated = run.config["env"], content["env"]
    if not isinstance(evaluated, str):
        raise TypeError(f"its environment is {evaluated!r}")
    env_steps = _whole(record.about.get("env_steps") or 0)
    apart = paper_values.settings_apart({**run.config, "eval_env": evaluated})
    return EvalResult(
        environment=trained if trained == evaluated else f"{trained} on {evaluated}",
        method=run.label,
        seed=run.seed,
        burst=burst,
        reach=_share_in_percent(plain, "success_once"),
        reach_with_burst=_share_in_percent(content, "success_once") if burst else math.nan,
        saturation=_share_in_percent(plain, "saturation"),
        env_steps=env_steps,
        episodes=_whole(content["episodes"]),
        eval_seeds=tuple(_whole(part["seed"]) for part in content["seeds"]),
        source=str(record.path),
        plain_method=run.method,
        apart=(*apart, *paper_values.steps_apart(trained, env_steps)),
    )


def _burst_of(content: dict[str, Any]) -> Burst | None:
    if (intervention := content.get("intervention")) is not None:
        return str(intervention["name"]), _whole(intervention["patience"]), _whole(intervention["length"])
    burst = content.get("burst")
    return (_whole(burst[0]), _whole(burst[1])) if burst else None


def _whole(number: Any) -> int:
    if not 0 <= number < 2**63:
        raise ValueError(f"a number of {shown(number)}")
    return int(number)


def _share_in_percent(content: dict[str, Any], measure: str) -> float:
    """Return percent over all episodes of all evaluation seeds. JSON has null for nan."""
    shares = [math.nan if part[measure] is None else float(part[measure]) for part in content["seeds"]]
    if not shares:
        raise ValueError("it has no episodes")
    if not all(0.0 <= share <= 1.0 for share in shares if share == share):
        raise ValueError(f"{measure} is no share")
    return 100.0 * float(np.mean(shares))


# The tables.


def burst_sections(collection: Collection) -> list[Section]:
    """Return the tables of bursts and of saturation; if no result can be used, only a sentence."""
    bursts = Section("Periodic bursts", "bursts", tables=tuple(burst_tables(collection)))
    if table := saturation_table(collection):
        return [bursts, Section("Saturation", "saturation", tables=(table,))]
    unused = eval_results(collection)[1]
    words = ["No result of dcp eval can be used.", *unused] if unused else []
    return [bursts, Section("Saturation", "saturation", text="\n\n".join(words))]


def burst_tables(collection: Collection) -> list[Table]:
    """Return one table for each P and L, and for each intervention, compared with none on the same episodes."""
    results, unused = eval_results(collection)
    bursts = sorted({result.burst for result in results if result.burst}, key=lambda burst: (len(burst), burst))
    return [_burst_table([r for r in results if r.burst == burst], burst, unused) for burst in bursts]


def saturation_table(collection: Collection) -> Table | None:
    """Return None without any evaluation by `dcp eval`."""
    results, unused = eval_results(collection)
    chosen, left = one_each(results)
    if not chosen:
        return None
    groups = _groups(chosen)
    names, apart = _like_the_paper(groups)
    values = {key: paper_values.saturation(key[0], name) for key, name in names.items()}
    published = any(values.values())
    rows = []
    for key, some in groups.items():
        cells = [Cell(key[0]), Cell(key[1]), _count(some), _spread([result.saturation for result in some])]
        cells += [_paper(values.get(key))] if published else []
        rows.append(Row(tuple(cells), *key))
    columns = ("Environment", "Method", "Seeds", "Saturation (%)", *(["Paper"] if published else []))
    about = "The share of action components with |a| > 0.95, without a burst."
    notes = (about, STD, *_episodes(chosen), *apart, *left, *unused)
    return Table("saturation", "Saturation of deployed policies", columns, tuple(rows), notes)


def _burst_table(results: list[EvalResult], burst: Burst, unused: Sequence[str]) -> Table:
    chosen, left = one_each(results)
    groups = _groups(chosen)
    methods = in_order(method for _, method in groups)
    names, apart = _like_the_paper(groups)
    for method in methods:  # the paper's rows over all environments stand beside ours over the same ones
        if {env for env, label in names if label == method} == set(paper_values.ENVIRONMENTS):
            names[ALL, method] = method
    published = burst == paper_values.burst_setting() and bool(names)
    several = len({environment for environment, _ in groups}) > 1
    everything = {(ALL, method): [r for r in chosen if r.method == method] for method in methods if several}
    rivals = [r for r in chosen if r.method == paper_values.BASELINE]
    rows = [_burst_row(key, own, rivals, names if published else None) for key, own in {**groups, **everything}.items()]
    if len(burst) == 2:
        title, gained = f"Periodic burst, P = {burst[0]}, L = {burst[1]}", "Gain by the burst"
        what = f"Burst: random actions in the last {burst[1]} of every {burst[0]} steps, on the same episodes."
    else:
        title, gained = f"Intervention {burst[0]}, W = {burst[1]}, L = {burst[2]}", "Gain by the intervention"
        what = f"Intervention: for {burst[2]} steps after {burst[1]} without progress in psi, on the same episodes."
    columns = ["Environment", "Method", "Seeds", "Reach (%)", gained, "Wins/ties/losses"]
    minus = f"minus {paper_values.BASELINE}'s"
    columns += [f"Gain {minus}"] if rivals else []
    columns += ["Reach, paper", "Gain, paper", "W/T/L, paper", f"{minus.capitalize()}, paper"] if published else []
    notes = (
        f"Reach: episodes that come near their goal at least once. {what}",
        STD,
        BOLD,
        "Wins, ties and losses: trained seeds whose reach it raises, leaves unchanged and lowers.",
        *([OVER_ALL] if several else []),
        *([PAPERS_OVER_ALL] if several and published else []),
        *_episodes(chosen),
        *(apart if burst == paper_values.burst_setting() else []),
        *left,
        *unused,
    )
    name = "_".join(map(str, burst if len(burst) == 3 else ("burst", *burst)))
    return Table(name, title, tuple(columns), tuple(rows), notes)


def _like_the_paper(groups: Mapping[Key, Sequence[EvalResult]]) -> tuple[dict[Key, str], list[str]]:
    """Return the paper's name of the method of each group that may be compared, and a sentence for each other one."""
    apart = {key: list(dict.fromkeys(x for r in some for x in r.apart)) for key, some in groups.items()}
    methods = {key: some[0].plain_method for key, some in groups.items()}
    names = {key: methods[key] for key, reasons in apart.items() if not reasons}
    return names, paper_values.apart_notes(apart, methods)


def _burst_row(
    key: Key, results: list[EvalResult], rivals: list[EvalResult], published: Mapping[Key, str] | None
) -> Row:
    environment, method = key
    over_all, is_rival = environment == ALL, method == paper_values.BASELINE
    gains = [result.gain for result in results]
    gain = _spread(gains, sign=True)
    is_clear = gain.spread is not None and gain.value is not None and gain.value > gain.spread and not over_all
    record = "/".join(str(sum(np.sign(x) == sign for x in gains)) for sign in (1, 0, -1))
    reach = absent() if over_all else _spread([result.reach for result in results])
    cells = [Cell(environment), Cell(method), _count(results), reach, replace(gain, bold=is_clear), Cell(record)]
    if rivals:
        shared = {r.environment for r in rivals} & {r.environment for r in results}
        mine, theirs = ([r.gain for r in side if r.environment in shared] for side in (results, rivals))
        unfit = is_rival or not shared
        cells.append(absent() if unfit else number(float(np.mean(mine) - np.mean(theirs)), sign=True))
    if published is not None:
        name = published.get(key, "")
        base = None if over_all else paper_values.burst(environment, name, "base")
        cells += [_paper(base), _paper(paper_values.burst(environment, name, "delta"), sign=True)]
        known = paper_values.burst_record(name) if over_all else None
        less = None
        if name == paper_values.METHOD and published.get((environment, paper_values.BASELINE)):
            less = paper_values.burst_advantage(environment)
        cells.append(Cell("/".join(map(str, known))) if known else absent())
        cells.append(absent() if less is None else number(less, sign=True))
    return Row(tuple(cells), "" if over_all else environment, method)


def _groups(results: Sequence[EvalResult]) -> dict[Key, list[EvalResult]]:
    environments, methods = in_order(r.environment for r in results), in_order(r.method for r in results)
    groups = {(env, name): [r for r in results if r.key == (env, name)] for env in environments for name in methods}
    return {key: some for key, some in groups.items() if some}


def _spread(values: Sequence[float], sign: bool = False) -> Cell:
    """Return the population std, as in the paper; nan for one value, where it would always be 0."""
    std = float(np.std(values)) if len(values) > 1 else None
    return number(float(np.mean(values)), std, count=len(values), sign=sign)


def _count(results: Sequence[EvalResult]) -> Cell:
    return Cell(str(len(results)), len(results), hover="seeds " + ", ".join(str(result.seed) for result in results))


def _paper(published: Published | None, sign: bool = False) -> Cell:
    return absent(paper_values.NOT_THERE) if published is None else number(*published, sign=sign)


def _episodes(chosen: Sequence[EvalResult]) -> list[str]:
    """Say how many episodes were used, and whether policies of one environment had others or trained longer."""
    counts = sorted({result.episodes for result in chosen})
    notes = [f"Episodes of each policy: {', '.join(map(str, counts))}."]
    for environment in in_order(result.environment for result in chosen):
        protocols = {(r.episodes, r.eval_seeds) for r in chosen if r.environment == environment}
        if len(protocols) > 1:
            notes.append(
                f"{environment}: not all policies had the same episodes, so differences between them are rough."
            )
        steps = sorted({r.env_steps for r in chosen if r.environment == environment})
        if steps[0] < 0.9 * steps[-1]:
            notes.append(f"{environment}: the policies were trained for {steps[0]:,} to {steps[-1]:,} steps.")
    return notes

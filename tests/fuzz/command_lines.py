"""Random command lines in one process, and hostile environments in processes of their own: no traceback, no hang.

python -m tests.fuzz.command_lines 400 SEED     command lines
python -m tests.fuzz.command_lines environments

A line ends with 0, with 2 and one sentence, or with 1 and a sentence about the machine. Every command can be drawn but
`pull`, which would ask the network. A line that would do honest work for long is cut short by its own flags.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from random import Random

SECONDS = 60  # for one line; longer is a hang, or honest work that FLAGS should cut short
# What each command gets before the random flags, so that what is sound ends soon. RUN is a run, GRID a grid file.
COMMANDS: dict[str, tuple[str, ...]] = {
    "train": ("--preset", "smoke", "--dry-run"),
    "eval": ("RUN", "--episodes", "2"),
    "render": ("RUN", "--format", "html", "--steps", "3"),
    "explore": ("RUN", "--steps", "3"),
    "export": ("RUN", "--format", "numpy"),
    "run": ("RUN", "--seconds", "0.1"),
    "latency": ("RUN", "--steps", "3"),
    "report": ("RUN",),
    "paper": ("--ledger", "RUN"),
    "record": ("RUN", "--episodes", "2"),
    "push": ("RUN", "nobody/nothing", "--dry-run", "--episodes", "2"),
    "landscape": ("RUN", "--rollouts", "1"),
    "compare": ("RUN", "RUN"),
    "grid": ("GRID", "--dry-run"),
    "tune": ("GRID", "--dry-run"),
    "diagnose": ("RUN", "--episodes", "2", "--states", "4", "--only", "gaps"),
    "envs": (),
    "methods": (),
    "doctor": ("--help",),
    "help": (),
    "": (),
}
FLAGS = (
    "--env", "--eval-env", "--method", "--seed", "--steps", "--config", "--resume", "--runs-dir", "--out", "--preset",
    "--goal", "--goal-file", "--seeds", "--format", "--episodes", "--where", "--own-code", "--import",
    "--score", "--condition", "--condition.scale", "--critic", "--pool-seed", "--num-envs", "--width", "--discount",
    "--burst", "--physics", "--randomize", "--control", "--dataset", "--only", "--launcher",
    "--memory", "--checkpoints", "--camera",
    "--json", "--help", "-h", "--version", "--", "-", "--no-such-flag",
)  # fmt: skip
LONG = "a" * 5_000
VALUES = (
    "", " ", "0", "-0", "1", "-1", "2", "1.5", "1e6", "1e308", "-1e308", "1e999", "nan", "inf", "-inf", "0x10",
    "\u0661",    "9" * 30, "9" * 5_000, str(2**31), str(2**32), str(2**63), str(2**64), "true", "none", "None", "null",
    "dcp", "crl", "point_u_maze", "ant_u_maze_eval", "smoke", "mujoco", "numpy", "html", "auto", "norm",
    "evil", "evil:", "evil:make", "evil:make:x", "evil:make x", ":evil", "os:system", "builtins:exec", "jax:jit",
    "RUN", "GRID", "EMPTY", "FILE", "FIFO", "LOOP", "OUT", "BINARY", "/dev/null", "/dev/zero", ".", "..",
    "~", "~nobody", "/proc/self/mem", "/nowhere/at/all", LONG, "/".join(["a"] * 3_000), "*", "[", "{", "{}", "%s%n",
    "$(touch x)", "`id`", "a\nb", "\x1b[2J", "\u2028", "\udcff", "é", "--steps", "-", "--", "=", "a=b", "seed=0",
    "'", '"', "\\", "[/b]", "BRACKETS",
)  # fmt: skip
ENVIRONMENTS = (
    {"JAX_PLATFORMS": "bogus"}, {"JAX_PLATFORMS": ""}, {"JAX_ENABLE_X64": "1"}, {"JAX_ENABLE_X64": "bogus"},
    {"JAX_DEFAULT_MATMUL_PRECISION": "bogus"}, {"JAX_NUMPY_DTYPE_PROMOTION": "strict"},
    {"JAX_NUM_CPU_DEVICES": "bogus"}, {"JAX_DEBUG_NANS": "1"},
    {"JAX_TRACEBACK_FILTERING": "bogus"}, {"JAX_DEFAULT_PRNG_IMPL": "bogus"},
    {"JAX_COMPILATION_CACHE_DIR": "/nowhere/at/all"}, {"JAX_COMPILATION_CACHE_DIR": "/dev/null"},
    {"COLUMNS": "0"}, {"COLUMNS": "-1"}, {"COLUMNS": "bogus"}, {"COLUMNS": "1"}, {"LINES": "bogus"}, {"TERM": "bogus"},
    {"HOME": ""}, {"HOME": "/nowhere/at/all"}, {"HOME": LONG}, {"TMPDIR": "/nowhere"}, {"XDG_CACHE_HOME": "/dev/null"},
    {"LANG": "bogus", "LC_ALL": "bogus"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "ascii"},
    {"NPROC": "bogus"}, {"NPROC": "9" * 400}, {"NPROC": "-1"}, {"OMP_NUM_THREADS": "bogus"}, {"TZ": "bogus"},
    {"DCP_IMPORT": "no_such_module"}, {"DCP_IMPORT": ",,"}, {"DCP_IMPORT": LONG}, {"MPLBACKEND": "bogus"},
    {"MPLCONFIGDIR": "/dev/null"}, {"MUJOCO_GL": "bogus"}, {"PYTHONHASHSEED": "0"}, {"PATH": ""}, {"NO_COLOR": "1"},
    {"FORCE_COLOR": "bogus"}, {"XLA_PYTHON_CLIENT_MEM_FRACTION": "bogus"}, {"CUDA_VISIBLE_DEVICES": "bogus"},
)  # fmt: skip
# In each of these, a plan and a training of a moment.
IN_ENVIRONMENTS = (
    ["train", "--preset", "smoke", "--dry-run"],
    ["envs"],
    ["train", "--preset", "smoke", "--steps", "4000"],
)


def line(random: Random) -> list[str]:
    """Draw a command line: a command, what cuts it short, and up to four flags with up to two values."""
    command = random.choice([*COMMANDS, *COMMANDS, "trian", "\udcff", LONG, "--help", "--version", "--import"])
    argv = [command, *(COMMANDS.get(command, ()) if random.random() < 0.8 else ())]
    for _ in range(random.choice((0, 1, 1, 2, 2, 3, 4))):
        flag = random.choice(FLAGS)
        values = [random.choice(VALUES) for _ in range(random.choice((0, 1, 1, 1, 1, 2)))]
        argv += [f"{flag}={values[0]}"] if values and random.random() < 0.1 else [flag, *values]
    if random.random() < 0.1:
        argv.append(random.choice(VALUES))
    if command == "doctor":  # it measures the machine for minutes
        argv.append("--help")
    if command in ("train", "grid", "tune") and "--dry-run" not in argv:
        argv.append("--dry-run")
    return argv if command else argv[1:]


def prepare(folder: Path, run: Path) -> dict[str, str]:
    """Make what the values name, in an empty folder. -> the paths by these names"""
    names = ("RUN", "GRID", "EMPTY", "FILE", "FIFO", "LOOP", "OUT", "BINARY")
    paths = {name: folder / name.lower() for name in names}
    paths["BRACKETS"] = folder / "[b]" / "[/c]"  # which rich could take for its markup
    for name in ("RUN", "BRACKETS"):
        shutil.copytree(run, paths[name])
    paths["GRID"].write_text('preset = "smoke"\n[product]\nseed = [0, 1]\n')
    paths["EMPTY"].mkdir()
    paths["FILE"].write_text("0.2 0.1 0.15\n")
    paths["BINARY"].write_bytes(bytes(range(256)) * 40)
    os.mkfifo(paths["FIFO"])
    paths["LOOP"].symlink_to(paths["LOOP"])
    (folder / "evil.py").write_text("open('EVIL_RAN', 'a').write('import ')\ndef make(*_): pass\n")
    return {name: str(path) for name, path in paths.items()}


class TooLong(BaseException):
    """Raised through whatever a command catches."""


def judge(argv: list[str]) -> tuple[int | None, str | None]:
    """Run a command line in this process. -> its exit code, and what is wrong with how it ended"""
    from dcp.cli.main import main

    def late(*_: object) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    code, environ = None, dict(os.environ)
    with redirect_stdout(StringIO()) as stdout, redirect_stderr(StringIO()) as stderr:
        try:
            code = main(list(argv))
        except TooLong:
            return None, f"not finished after {SECONDS} s"
        except SystemExit as end:  # the help of a command
            return None, f"SystemExit {end.code}" if end.code else None
        except BaseException:
            return None, traceback.format_exc()[-1_500:]
        finally:
            signal.alarm(0)
            os.environ.clear()
            os.environ.update(environ)
    said = stderr.getvalue()
    if "Traceback" in said + stdout.getvalue():
        return code, said[-1_500:]
    if "\x1b" in said + stdout.getvalue():
        return code, "a control character reaches the terminal"
    if code not in (0, 1, 2):
        return code, f"exit code {code}"
    sentences = [text for text in said.splitlines() if text.startswith("dcp: ")]
    if code == 2 and (len(sentences) != 1 or len(said.splitlines()) > 3):
        return code, f"{len(said.splitlines())} lines: {said[:500]}"
    return code, None


def fuzz(count: int, seed: int, folder: Path, run: Path) -> dict[str, object]:
    """Run `count` command lines in an empty folder. A line's number makes it again: `Random(seed * 10**9 + number)`."""
    paths, offences, codes = prepare(folder, run), [], dict[str, int]()
    before, slowest = Path.cwd(), (0.0, "")
    os.chdir(folder)
    try:
        for number in range(count):
            argv = [paths.get(word, word) for word in line(Random(seed * 10**9 + number))]
            started = time.perf_counter()
            code, offence = judge(argv)
            codes[str(code)] = codes.get(str(code), 0) + 1
            slowest = max(slowest, (round(time.perf_counter() - started, 1), " ".join(argv)[:200]))
            told = any(word.startswith("--import") or word == "--own-code" for word in argv)
            if Path("EVIL_RAN").exists() and not told and not any("evil:make" in word for word in argv):
                offence = f"{offence or ''} code that nobody named ran"
            Path("EVIL_RAN").unlink(missing_ok=True)
            if offence is not None:
                offences.append(f"{number}: {[word[:60] for word in argv]}: {offence}")
    finally:
        os.chdir(before)
    return {"lines": count, "seed": seed, "exit codes": codes, "slowest": slowest, "offences": offences}


def judge_environment(values: dict[str, str], argv: list[str], folder: Path) -> str | None:
    """Run a command in a process with these variables. -> what is wrong with how it ended"""
    environ = {**os.environ, "PYTHONSAFEPATH": "1", **values}
    command = [sys.executable, "-m", "dcp.cli.main", *argv]
    try:
        done = subprocess.run(
            command, env=environ, cwd=folder, capture_output=True, text=True, errors="replace", timeout=200
        )
    except subprocess.TimeoutExpired:
        return "not finished after 200 s"
    if "Traceback" in done.stderr + done.stdout or done.returncode not in (0, 1, 2):
        return f"exit code {done.returncode}: {done.stderr[-700:]}"
    return None


def main(argv: list[str]) -> int:
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:  # spare the machine
        resource.setrlimit(resource.RLIMIT_AS, (24 * 10**9, resource.RLIM_INFINITY))
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    with tempfile.TemporaryDirectory(prefix="dcp-lines-") as name:
        if argv[:1] == ["environments"]:
            offences = []
            for values in ENVIRONMENTS:
                for number, command in enumerate(IN_ENVIRONMENTS):
                    runs = ["--runs-dir", f"{name}/{number}", "--overwrite"] if command[0] == "train" else []
                    if offence := judge_environment(values, [*command, *runs], Path(name)):
                        shown = {key: value[:40] for key, value in values.items()}
                        offences.append(f"{shown} dcp {' '.join(command)}: {offence}")
            result: dict[str, object] = {"environments": len(ENVIRONMENTS), "offences": offences}
        else:
            from dcp.runs.training import train
            from tests.support.tiny import tiny_config

            run = train(tiny_config(), runs_dir=Path(name) / "runs", display="none").folder
            assert run is not None
            (folder := Path(name) / "here").mkdir()
            result = fuzz(int(argv[0]), int(argv[1]) if len(argv) > 1 else 0, folder, run)
    print(json.dumps(result, indent=1))
    return 1 if result["offences"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""One predicate decides what names code, and nothing is imported that the user has not named."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dcp.cli.flags import CODE_FIELDS
from dcp.cli.main import main
from dcp.components import TABLES
from dcp.config import MAY_BE_CODE, Config, Settings, field_kinds
from dcp.envs.registry import env_of, make_env
from dcp.errors import UserError
from dcp.methods.table import make_agent
from dcp.named_code import NotAllowedError, allow, import_named, is_code, only_allowed, require_allowed

EVIL = """
open("EVIL_RAN", "a").write("import")
def make(*a): open("EVIL_RAN", "a").write("call")
globals()["make:x"] = make
"""
NAMES = ("evil:make:x", "evil:", "evil:make x", "evil:make", "evil:make:", ":evil", "evil.:make", "evil:make\n")
TEXT_FIELDS = [name for name, kinds in field_kinds().items() if str in kinds]


class _Attempts(MetaPathFinder):
    """Record every module that Python looks for, by whatever way it is asked."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        self.names.append(fullname.split(".")[0])


ATTEMPTS = _Attempts()
_SEEN: list[str] = []
sys.addaudithook(lambda event, args: _SEEN.append(str(args[0]).split(".")[0]) if event == "import" else None)


@pytest.fixture(scope="module", autouse=True)
def attempts() -> Iterator[None]:
    sys.meta_path.insert(0, ATTEMPTS)
    yield
    sys.meta_path.remove(ATTEMPTS)


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with a module that tells when it is imported or called."""
    (tmp_path / "evil.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("evil", None)


def stored(folder: Path, **values: Any) -> Path:
    """Write the config.json of a smoke run in which a stranger has changed something."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"env": "point_u_maze", "method": "crl", "steps": 50_000} | values
    (folder / "config.json").write_text(json.dumps({"schema_version": 2, "config": config, "earlier_budgets": []}))
    return folder


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("field", ["env", "eval_env"])
@pytest.mark.parametrize(
    "argv",
    [
        ["train", "--resume", "s", "--steps", "90000"],
        ["train", "--config", "s", "--dry-run"],
        ["train", "--resume", "auto", "--config", "s", "--dry-run"],
        ["train", "--seeds", "0", "1", "--config", "s"],
        ["train", "--seeds", "0", "1", "--seeds-as", "processes", "--config", "s", "--dry-run"],
    ],
    ids=" ".join,
)
def test_a_strangers_config_runs_no_code(argv: list[str], field: str, name: str, evil: Path, capsys):
    stored(evil / "s", **{field: name})
    assert main(argv) == 2
    assert not (evil / "EVIL_RAN").exists()
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_strangers_grid_file_runs_no_code(name: str, evil: Path, capsys):
    text = f'preset = "smoke"\n[product]\nenv = [{json.dumps(name)}]\nseed = [0]\n'
    (evil / "grid.toml").write_text(text)
    assert main(["grid", "grid.toml", "--dry-run"]) == 2
    assert not (evil / "EVIL_RAN").exists()
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_folder_whose_path_reads_like_code_does_not_allow_the_code(evil: Path, capsys):
    stored(evil / "evil:make", env="evil:make")
    assert main(["train", "--resume", "evil:make"]) == 2
    assert main(["train", "--config", "evil:make", "--dry-run"]) == 2
    assert not (evil / "EVIL_RAN").exists()
    assert "names the code 'evil:make'" in capsys.readouterr().err


def test_code_that_the_user_types_is_imported_from_the_current_folder(evil: Path, capsys):
    assert main(["train", "--env", "evil:make", "--dry-run"]) == 2
    assert "evil:make made a NoneType" in capsys.readouterr().out
    assert (evil / "EVIL_RAN").read_text().startswith("import")


def test_a_wrong_environment_is_refused_in_one_sentence():
    for field in ("env", "eval_env"):
        with pytest.raises(UserError, match=f"{field} is 'evil:make:x': use a name of `dcp envs`, or your own as"):
            Config(**{field: "evil:make:x"})


def test_outside_a_command_python_code_imports_what_it_names_and_a_command_only_what_was_allowed():
    assert import_named("json:dumps") is json.dumps
    with only_allowed():
        with pytest.raises(NotAllowedError, match="'json:dumps' is code that you have not named"):
            import_named("json:dumps")
        allow(["shutil:copytree", ("json:dumps", 3)])
        assert import_named("json:dumps") is json.dumps and import_named("shutil:copytree") is shutil.copytree
        with only_allowed(["json:loads"]):
            assert import_named("json:loads") is json.loads and import_named("json:dumps") is json.dumps
        with pytest.raises(NotAllowedError):
            import_named("json:loads")
        require_allowed({"env": "json:dumps", "score": "cosine"})
        with pytest.raises(UserError, match="name it too: --env json:loads, or --import json"):
            require_allowed({"env": "json:loads"})
    assert import_named("json:loads") is json.loads


@pytest.mark.parametrize("name", ["json", "json:", ":dumps", "json:dumps:x", "json:dumps x", "../a:b", ""])
def test_what_is_not_a_name_of_code_is_imported_by_nobody(name: str):
    assert not is_code(name)
    with pytest.raises(NotAllowedError, match="names no code: write it as module:name"):
        import_named(name)


def test_every_field_that_may_name_code_is_one_whose_flag_allows_it():
    assert set(MAY_BE_CODE) < set(CODE_FIELDS)
    tables = {kind for kind in TABLES if kind in vars(Settings())}
    assert tables <= set(MAY_BE_CODE)


PIECES = st.sampled_from(["evil_part", "numpy", ":", ".", " ", "make", "x", "\n", "\x00", "é", "ª", "-", "/", "1"])
WORDS = st.one_of(st.lists(PIECES, max_size=6).map("".join), st.text(max_size=12))
FIELDS = st.sampled_from([*TEXT_FIELDS, "condition.scale", "critic.energy", "command.score", "network.activation"])


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(fields=st.dictionaries(FIELDS, WORDS, min_size=1, max_size=4), typed=st.lists(WORDS, max_size=2))
@example(fields={"env": "evil_part:make:x"}, typed=[])
@example(fields={"eval_env": "evil_part:"}, typed=[])
@example(fields={"env": "evil_part:make"}, typed=["evil_part:make"])
def test_an_import_is_attempted_only_of_what_the_user_has_named(fields: dict[str, str], typed: list[str]):
    """Whatever a file holds, in every field: making its environments and its agent asks Python for no module but
    those of names that the config reports as code, and that the user has typed."""
    values = {name: text for name, text in fields.items() if "." not in name}
    changed = Settings(**values, component_settings={name: text for name, text in fields.items() if "." in name})
    first, audited = len(ATTEMPTS.names), len(_SEEN)
    with only_allowed(typed):
        for env in (changed.env, changed.eval_env):
            with suppress(UserError):
                env_of(changed, env or changed.env)
        with suppress(UserError):
            make_agent(changed, make_env("point_u_maze").spec)
        for kind in TABLES:
            with suppress(UserError):
                TABLES[kind].find(fields.get(kind))
    modules = {*ATTEMPTS.names[first:], *_SEEN[audited:]} - set(sys.stdlib_module_names) - {"dcp", "jax", "numpy"}
    named = {name.split(":")[0].split(".")[0] for name in changed.code.values() if name in typed}
    assert modules <= named

"""The one reader of command lines: every type of flag, its sentence and its help."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest

from dcp.cli.flags import POSITIONAL, Burst, parse, read
from dcp.errors import UserError


@dataclass(frozen=True)
class Inner:
    """Settings inside the options."""

    learning_rate: float = 0.1
    """How fast."""
    component_settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    runs: Annotated[tuple[str, ...], POSITIONAL] = ()
    """What to look at."""
    steps: int = 5
    """How long
    it takes."""
    seeds: tuple[int, ...] = ()
    """Which."""
    env: str | None = "maze"
    """Where."""
    out: Path = Path("here")
    plots: bool = True
    """Draw."""
    colour: Literal["red", "blue"] | None = None
    burst: Burst = None
    inner: Inner = field(default_factory=Inner)


@dataclass(frozen=True)
class Scaled:
    scale: float = 1.0
    """Times this."""
    centre: bool = False
    levels: tuple[int, ...] = (1, 2)
    score: str | Callable[..., Any] = "cosine"
    width: int = 3

    from_config: ClassVar[tuple[str, ...]] = ("width",)  # a flag already


def options(words: str, **more: Any) -> Options:
    return parse(Options(), words.split(), "dcp look", "Look at runs.", **more)


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ("--steps 7", "steps", 7),
        ("--steps=7", "steps", 7),
        ("--steps 7 --steps 8", "steps", 8),
        ("--steps -7", "steps", -7),
        ("--steps 1e6", "steps", 1_000_000),
        ("--steps 2.5e3", "steps", 2_500),
        ("--steps 9007199254740993e0", "steps", 9007199254740993),  # a float would round it
        ("--seeds 1e1 2", "seeds", (10, 2)),
        ("--seeds 0 1 2 --steps 3", "seeds", (0, 1, 2)),
        ("--seeds", "seeds", ()),
        ("--seeds=4 a", "seeds", (4,)),
        ("--env pit", "env", "pit"),
        ("--env None", "env", None),
        ("--env=", "env", ""),
        ("--out /tmp/x", "out", Path("/tmp/x")),
        ("--no-plots", "plots", False),
        ("--no-plots --plots", "plots", True),
        ("--colour blue", "colour", "blue"),
        ("--burst", "burst", (100, 10)),
        ("--burst a", "burst", (100, 10)),
        ("--burst 50 5 a", "burst", (50, 5)),
        ("--burst=50 5", "burst", (50, 5)),
        ("a --steps 3 b", "runs", ("a", "b")),
        ("", "env", "maze"),
    ],
)
def test_each_type_of_flag_is_read(words: str, field: str, value: Any):
    assert getattr(options(words), field) == value


def test_a_flag_of_an_inner_dataclass_has_no_prefix_and_may_be_written_with_underscores():
    assert options("--learning-rate 1e-3").inner.learning_rate == options("--learning_rate 1e-3").inner.learning_rate
    assert options("--learning-rate -1e-3").inner.learning_rate == -0.001


def test_only_what_is_given_is_read():
    assert read(Options(), ["--steps", "5", "x"], "dcp look") == {"steps": 5, "runs": ("x",)}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--steps x", "--steps takes a whole number, not 'x': see `dcp look --help`"),
        ("--steps 1.5", "--steps takes a whole number, not '1.5': see `dcp look --help`"),
        ("--steps 1e99999999", "--steps takes a whole number, not '1e99999999': see `dcp look --help`"),
        ("--steps inf", "--steps takes a whole number, not 'inf': see `dcp look --help`"),
        ("--learning-rate x", "--learning-rate takes a number, not 'x': see `dcp look --help`"),
        ("--seeds 1 x", "--seeds takes whole numbers, not 'x': see `dcp look --help`"),
        ("--burst 5", "--burst takes two whole numbers, such as 100 10, not '5': see `dcp look --help`"),
        ("--steps", "--steps needs a value: see `dcp look --help`"),
        ("--steps --plots", "--steps needs a value: see `dcp look --help`"),
        ("--colour green", "unknown value 'green' for --colour: choose one of red, blue"),
        ("--plots=no", "--plots takes no value: leave out 'no'"),
        ("--stepz 3", "unknown option --stepz: did you mean --steps?"),
        ("--no-steps", "unknown option --no-steps: did you mean --steps?"),
        ("--runs x", "unknown option --runs: did you mean --burst?"),
        ("-q", "unknown option -q: see `dcp look --help`"),
        ("--critic.scale 2", "unknown option --critic.scale: see `dcp look --help`"),
    ],
)
def test_each_mistake_gives_its_sentence(words: str, sentence: str):
    with pytest.raises(UserError) as mistake:
        options(words)
    assert str(mistake.value) == sentence


def test_a_components_settings_are_typed_by_its_fields():
    given = options("--part.scale 2 --part.centre --part.levels 3 4", extra={"part": Scaled})
    assert given.inner.component_settings == {"part.scale": 2.0, "part.centre": True, "part.levels": (3, 4)}
    stored = Options(inner=Inner(component_settings={"part.scale": 3.0, "part.centre": True}))
    again = parse(stored, ["--no-part.centre"], "dcp look", "", extra={"part": Scaled})
    assert again.inner.component_settings == {"part.scale": 3.0, "part.centre": False}
    with pytest.raises(UserError, match=r"unknown option --part\.scael: did you mean --part\.scale"):
        options("--part.scael 2", extra={"part": Scaled})


def test_before_the_components_are_known_their_settings_stay_text():
    words = ["--part.scale", "2", "--steps", "3", "--no-part.centre", "--seeds", "1"]
    assert read(Options(), words, "dcp look") == {
        "part.scale": ["2"],
        "steps": 3,
        "no-part.centre": [],
        "seeds": (1,),
    }


def test_the_help_shows_every_flag_with_its_text_and_default(capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        options("--help", extra={"part": Scaled})
    assert stop.value.code == 0
    assert (
        capsys.readouterr().out
        == """usage: dcp look [options] [RUNS ...]

Look at runs.

options:
  RUNS                    What to look at.
  --steps INT             How long it takes. (default: 5)
  --seeds [INT ...]       Which.
  --env STR               Where. (default: maze)
  --out PATH              (default: here)
  --plots, --no-plots     Draw. (default: True)
  --colour {red,blue}
  --burst INT INT

inner:
  --learning-rate FLOAT   How fast. (default: 0.1)

part Scaled:
  --part.scale FLOAT      Times this. (default: 1.0)
  --part.centre, --no-part.centre
  --part.levels [INT ...]
                          (default: 1 2)
  --part.score STR        (default: cosine)

of every command:
  -h, --help              Show this text.
  --import MODULE         Import this module first, such as one that registers
                          an environment. May be repeated.
"""
    )

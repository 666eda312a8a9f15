"""`dcp completion`: a script that lets bash, zsh or fish complete commands, flags and their values."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, get_args

from dcp.cli.flags import POSITIONAL, Flag, flags_of, parse
from dcp.cli.main import COMMANDS, SHARED
from dcp.errors import UserError
from dcp.files.run_folder import zoo_names
from dcp.presets import PRESETS

_BASH = """\
# dcp completion bash: put it into ~/.bashrc as  eval "$(dcp completion bash)"
_dcp() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}"
    local words="" files=yes
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then words="{commands}" files=""; else
        case "$command $before" in
{values}
            *) case "$command" in
{flags}
            esac ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    case "$word" in --*) ;; *) [ -n "$files" ] && COMPREPLY+=($(compgen -f -- "$word")) ;; esac
}}
complete -o filenames -F _dcp dcp
"""
_ZSH = """\
# dcp completion zsh: put it into ~/.zshrc as  eval "$(dcp completion zsh)"
autoload -U +X bashcompinit && bashcompinit
"""


@dataclass(frozen=True)
class CompletionOptions:
    shell: Annotated[str, POSITIONAL] = ""
    """bash, zsh or fish."""


def main(argv: list[str]) -> int:
    options = parse(CompletionOptions(), argv, "dcp completion", COMMANDS["completion"])
    scripts = {"bash": bash, "zsh": lambda: _ZSH + bash(), "fish": fish}
    if options.shell not in scripts:
        problem = f"there is no script for {options.shell!r}" if options.shell else "name your shell"
        raise UserError(f"{problem}: choose one of {', '.join(scripts)}")
    print(scripts[options.shell](), end="")
    return 0


def bash() -> str:
    values, flags = [], []
    for command, its_flags in _commands():
        names = [name for flag in its_flags for name in _names(flag)]
        words = [*names, *(zoo_names() if any(flag.positional for flag in its_flags) else [])]
        flags.append(f'                {command}) words="{" ".join(words)}" ;;')
        for flag in its_flags:
            if choices := _choices(flag):
                values.append(f'            "{command} {flag.name}") words="{" ".join(choices)}" files="" ;;')
    return _BASH.format(commands=" ".join(COMMANDS), values="\n".join(values), flags="\n".join(flags))


def fish() -> str:
    lines = ["# dcp completion fish: dcp completion fish > ~/.config/fish/completions/dcp.fish"]
    for command, purpose in COMMANDS.items():
        lines.append(f"complete -c dcp -n __fish_use_subcommand -a {command} -d {_quoted(purpose)}")
    for command, flags in _commands():
        only = f"complete -c dcp -n '__fish_seen_subcommand_from {command}'"
        for flag in (flag for flag in flags if not flag.positional):
            choices = _choices(flag)
            takes = f" -x -a {_quoted(' '.join(choices))}" if choices else "" if flag.kind is bool else " -r"
            lines += [f"{only} -l {name[2:]}{takes}" for name in _names(flag)]
        if any(flag.positional for flag in flags):
            lines.append(f"{only} -a {_quoted(' '.join(zoo_names()))}")
    return "\n".join(lines) + "\n"


def _commands() -> Iterator[tuple[str, list[Flag]]]:
    """Yield each command with its flags, which come from the dataclass named after it in its module."""
    for command in COMMANDS:
        module = import_module(f"dcp.cli.{SHARED.get(command, command)}")
        options: Any = getattr(module, f"{command.capitalize()}Options", None)
        yield command, [] if options is None else list(flags_of(options()))


def _names(flag: Flag) -> list[str]:
    if flag.positional:
        return []
    return [flag.name, f"--no-{flag.name[2:]}"] if flag.kind is bool else [flag.name]


def _choices(flag: Flag) -> list[str]:
    """Return the values that a flag accepts; empty where they cannot be listed."""
    from dcp.envs.registry import ENVIRONMENTS
    from dcp.methods.table import METHODS

    tables = {"env": ENVIRONMENTS, "eval_env": ENVIRONMENTS, "method": METHODS, "preset": PRESETS}
    return list(tables.get(flag.field, ())) if flag.kind is str else [str(choice) for choice in get_args(flag.kind)]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

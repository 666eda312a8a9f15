"""Environments and methods by number: what a page filters by. A number needs no escaping, whatever a name is."""

from dataclasses import dataclass
from html import escape

from dcp.analysis.collection import Collection
from dcp.analysis.style import colours

# The figures' colours, lighter where they stand on a dark ground.
_DARK = {
    "#0072B2": "#4DA6E0",
    "#D55E00": "#F08A4B",
    "#009E73": "#35C295",
    "#CC79A7": "#E09CC2",
    "#E69F00": "#F0B73F",
    "#56B4E9": "#8CCBF0",
    "#7F7F7F": "#A8A8A8",
    "#000000": "#E8E8E8",
}
UNKNOWN = "?"  # of a run whose config cannot be read


@dataclass(frozen=True)
class Names:
    environments: tuple[str, ...]
    methods: tuple[str, ...]

    @classmethod
    def of(cls, collection: Collection) -> "Names":
        """In the collection's order; what has no evaluation yet comes last."""
        environments = dict.fromkeys([*collection.environments, *(run.env for run in collection.runs if run.env)])
        methods = dict.fromkeys([*collection.methods, *(run.label for run in collection.runs if run.label)])
        return cls(tuple(environments), tuple(methods))

    @property
    def colours(self) -> dict[str, str]:
        """One colour a method in all figures of a report."""
        return colours(list(self.methods))

    def tags(self, environment: str = "", method: str = "") -> str:
        """Attributes of an element that belongs to an environment, a method, or both. Of others it shows always."""
        return _tag("environment", environment, self.environments) + _tag("method", method, self.methods)

    def styles(self) -> str:
        """The method's colour as a property of class m0, m1, ..., in light and dark."""
        light = list(self.colours[method] for method in self.methods)
        dark = [_DARK.get(colour, colour) for colour in light]
        on_dark = _properties(dark)
        return "\n".join(
            [
                f":root {{ {_properties(light)} }}",
                f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {on_dark} }} }}',
                f':root[data-theme="dark"] {{ {on_dark} }}',
                *[f".m{i} {{ --colour: var(--m{i}); }}" for i in range(len(light))],
            ]
        )

    def chips(self) -> str:
        return "".join(
            [
                _choice("environment", "Environment", self.environments),
                _choice("method", "Method", self.methods),
            ]
        )


def _tag(kind: str, name: str, names: tuple[str, ...]) -> str:
    if name == UNKNOWN:
        return f' data-{kind}="-1"'  # hidden by any choice
    return f' data-{kind}="{names.index(name)}"' if name in names else ""


def _properties(values: list[str]) -> str:
    return " ".join(f"--m{i}: {value};" for i, value in enumerate(values))


def _choice(kind: str, label: str, names: tuple[str, ...]) -> str:
    if not names or (len(names) == 1 and kind == "environment"):  # nothing to choose; one method still has a colour
        return ""
    chips = "".join(_chip(kind, i, name) for i, name in enumerate(names))
    everything = f'<button type="button" class="everything" data-everything="{kind}" hidden>all</button>'
    return f'<div class="choice" role="group" aria-label="{label}"><span>{label}</span>{chips}{everything}</div>\n'


def _chip(kind: str, index: int, name: str) -> str:
    swatch = f'<i class="swatch m{index}"></i>' if kind == "method" else ""
    attributes = f'type="button" class="chip" data-choose="{kind}" data-index="{index}" title="{escape(name)}"'
    return f'<button {attributes} aria-pressed="false">{swatch}{escape(name)}</button>'

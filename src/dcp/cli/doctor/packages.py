"""The installed packages against what dcp's own metadata asks for, so that a new requirement needs no line here."""

import importlib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, packages_distributions, requires, version
from typing import TYPE_CHECKING

from dcp import __version__
from dcp.cli.doctor.check import Check, ProbeError, first_line, in_a_process

if TYPE_CHECKING:
    from packaging.requirements import Requirement

NOT_OFFERED = ("dev",)  # for work on dcp itself
# Parts of a namespace: to import the whole would say nothing of them.
_PARTS = {"orbax-checkpoint": "orbax.checkpoint", "mujoco-mjx": "mujoco.mjx"}


def packages() -> Iterator[Check]:
    """One row for all that fit, and one for each that does not."""
    needed = _needed()
    unmet = {r.name: problem for r in needed if (problem := _unmet(r))}
    fitting = [r.name for r in needed if r.name not in unmet]
    broken = _broken(fitting)
    good = [f"{name} {version(name)}" for name in fitting if name not in broken]
    yield Check("packages", "ok", f"dcp {__version__} with {', '.join(good)}")
    for requirement in needed:
        name, wanted = requirement.name, f"'{requirement.name}{requirement.specifier}'"
        if name in unmet:
            yield Check(name, "problem", unmet[name], f"pip install {wanted}")
        elif name in broken:
            found = f"{version(name)}, but it does not import ({broken[name]})"
            yield Check(name, "problem", found, f"pip install --force-reinstall {wanted}")


def extras() -> Iterator[Check]:
    for extra in metadata("dcp").get_all("Provides-Extra") or []:
        if extra in NOT_OFFERED:
            continue
        problems = unmet_of_extra(extra)
        if problems:
            more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
            yield Check(f"extra {extra}", "missing", problems[0] + more, f"If you want it: pip install 'dcp[{extra}]'")
        else:
            there = [f"{r.name} {version(r.name)}" for r in of_extra("dcp", extra)]
            yield Check(f"extra {extra}", "ok", ", ".join(there))


def _needed() -> list["Requirement"]:
    """dcp's, and jaxlib, which is most of JAX and comes in a version of its own."""
    own = requirements("dcp")
    try:
        return [*own, *(r for r in requirements("jax") if r.name == "jaxlib")]
    except PackageNotFoundError:
        return own


def requirements(package: str, extra: str = "") -> list["Requirement"]:
    """What this package asks for on this machine, with this extra."""
    from packaging.requirements import Requirement

    every = [Requirement(text) for text in requires(package) or []]
    return [r for r in every if r.marker is None or r.marker.evaluate({"extra": extra})]


def of_extra(package: str, extra: str) -> list["Requirement"]:
    """What the extra adds. jax[cuda12] of dcp[cuda] is jax and all that its own extra adds."""
    plain = {str(r) for r in requirements(package)}
    added = [r for r in requirements(package, extra) if str(r) not in plain]
    return [inner for r in added for inner in (r, *(x for part in r.extras for x in of_extra_if_there(r.name, part)))]


def of_extra_if_there(package: str, extra: str) -> list["Requirement"]:
    try:
        return of_extra(package, extra)
    except PackageNotFoundError:
        return []


def unmet_of_extra(extra: str) -> list[str]:
    return [problem for r in of_extra("dcp", extra) if (problem := _unmet(r))]


def _unmet(requirement: "Requirement") -> str | None:
    try:
        there = version(requirement.name)
    except PackageNotFoundError:
        return f"{requirement.name} is not installed"
    if requirement.specifier.contains(there, prereleases=True):
        return None
    return f"{requirement.name} {there} is installed, where {requirement.specifier} is needed"


def _broken(names: list[str]) -> dict[str, str]:
    """Installed packages that do not import -> why"""
    try:
        return in_a_process(import_all, *names, timeout=300)
    except ProbeError:  # the interpreter went down with it: one at a time says with which
        alone = {name: why for name in names if (why := _alone(name))}
        if not alone:
            raise
        return alone


def _alone(name: str) -> str | None:
    try:
        return in_a_process(import_all, name, timeout=300).get(name)
    except ProbeError as error:
        return str(error)


def import_all(*names: str) -> dict[str, str]:
    modules = {owner.lower(): module for module, owners in packages_distributions().items() for owner in owners}
    failures: dict[str, str] = {}
    for name in names:
        try:
            importlib.import_module(_PARTS.get(name) or modules.get(name.lower(), name))
        except Exception as error:
            failures[name] = first_line(error)
    return failures

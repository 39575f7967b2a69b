"""constraints.txt pins the whole environment; what runs here and environment.yml agree with it."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name as canonical

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonical(name): version for name, version in pairs}


def declared(*extras: str) -> list[Requirement]:
    lists = [PROJECT["dependencies"], *(EXTRAS[extra] for extra in extras)]
    return [Requirement(line) for line in sum(lists, [])]


def public(version: str) -> str:
    return version.partition("+")[0]  # torch's CPU build calls itself 2.13.0+cpu


def test_every_line_pins_one_version_and_names_no_place():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    for line in lines:
        assert re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line), line
    assert pins()["torch"] == "2.13.0"
    names = [canonical(line.split("==")[0]) for line in lines if not line.startswith("#")]
    assert len(names) == len(set(names))


def test_everything_the_environment_needs_is_pinned_and_installed_as_pinned():
    """Walks the requirements of dlviz and of all it needs, in this Python."""
    pinned = pins()
    seen: set[tuple[str, frozenset[str]]] = set()
    ahead = [(r, frozenset[str]()) for r in declared("dev")]
    while ahead:
        requirement, extras = ahead.pop()
        if requirement.marker and not any(
            requirement.marker.evaluate({"extra": extra}) for extra in extras or {""}
        ):
            continue
        name = canonical(requirement.name)
        key = name, frozenset(requirement.extras)
        if key in seen:
            continue
        seen.add(key)
        assert name in pinned, f"{name} is not in constraints.txt"
        installed = public(metadata.version(name))
        assert installed == pinned[name], f"{name} {installed} is installed, {pinned[name]} pinned"
        needs = metadata.requires(name) or []
        ahead += [(Requirement(line), frozenset({"", *requirement.extras})) for line in needs]
    assert len(seen) > 50


def test_the_pins_are_within_what_pyproject_asks_for():
    for requirement in declared(*EXTRAS):
        assert pins()[canonical(requirement.name)] in requirement.specifier, str(requirement)


def test_conda_users_get_the_same_versions():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *outside, inside = environment["dependencies"]
    assert outside == [f"python{PROJECT['requires-python']}".replace(" ", ""), "pip"]
    options = [line for line in inside["pip"] if line.startswith("-")]
    assert options == ["-c constraints.txt", "-e ."]
    named = [Requirement(line) for line in inside["pip"] if line not in options]
    assert {(r.name, *r.extras, str(r.specifier)) for r in named} == {
        (r.name, *r.extras, f"=={pins()[canonical(r.name)]}") for r in declared("dev")
    }


def test_python_311_to_313_are_the_versions_offered():
    accepted = SpecifierSet(PROJECT["requires-python"])
    assert [v for v in ("3.10", "3.11", "3.12", "3.13", "3.14") if v in accepted] == [
        "3.11",
        "3.12",
        "3.13",
    ]
    makefile = (ROOT / "Makefile").read_text()
    assert re.findall(r"python3\.\d+", makefile) == ["python3.11", "python3.12", "python3.13"]


def test_every_dependency_has_its_reason():
    told = (ROOT / "CONTRIBUTING.md").read_text()
    reasons = re.findall(r"^\| `([\w@/-]+)` \| \S.*\|$", told, re.M)
    front = json.loads((ROOT / "package.json").read_text())["devDependencies"]
    assert set(reasons) == {r.name for r in declared(*EXTRAS)} | {*front}
    assert len(reasons) == len(set(reasons))


def test_what_checks_the_front_ends_is_pinned_and_its_lock_names_no_host():
    front = json.loads((ROOT / "package.json").read_text())["devDependencies"]
    lock = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    for name, version in front.items():
        assert lock[f"node_modules/{name}"]["version"] == version
    assert not [name for name, own in lock.items() if "resolved" in own]

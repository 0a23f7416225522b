"""Promises of the repository itself: what its files may contain, and that its metadata agree."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("benchmarks", "console", "engine", "screens", "styles", "tests")
NOT_OURS = [
    ".git",
    *(line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line and line[0] != "#"),
]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DEPENDENCIES: list[str] = [
    *PYPROJECT["project"]["dependencies"],
    *(line for extra in PYPROJECT["project"]["optional-dependencies"].values() for line in extra),
]


def text_files(folder: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Walks the tree instead of asking git, so that the suite also runs from an unpacked archive."""
    for path in sorted(folder.iterdir()):
        if any(path.match(pattern) for pattern in NOT_OURS):
            continue
        if path.is_dir():
            yield from text_files(path)
        elif path.is_file():
            try:
                yield path, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


def package_folders() -> list[Path]:
    return sorted({path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")})


def test_no_file_names_a_path_of_this_machine() -> None:
    # A short path such as /app is also an ordinary word of documentation, so it is not looked for.
    private = [str(path) for path in (ROOT, Path.home()) if len(path.parts) > 2]
    found = [
        f"{path.relative_to(ROOT)}: {name}" for path, text in text_files() for name in private if name in text
    ]
    assert found == []


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt", "Makefile", ".ci/run"])
def test_set_up_leaves_the_choice_of_package_index_to_the_machine(name: str) -> None:
    assert re.findall(r"\w+://\S*|index-url|find-links|trusted-host", (ROOT / name).read_text()) == []


def test_every_constraint_is_a_name_and_an_exact_version() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)] == []


@pytest.mark.parametrize("dependency", DEPENDENCIES)
def test_every_dependency_is_constrained_and_says_what_it_is_for(dependency: str) -> None:
    name = re.split(r"[^A-Za-z0-9._-]", dependency)[0]
    spelt = re.sub(r"[-_.]", "[-_.]", name)
    assert re.search(rf"^{spelt}==", (ROOT / "constraints.txt").read_text(), re.MULTILINE | re.IGNORECASE)
    assert re.search(rf'"{re.escape(dependency)}", # \w+', (ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("folder", package_folders(), ids=lambda folder: str(folder.relative_to(ROOT)))
def test_every_package_says_what_lives_there(folder: Path) -> None:
    init = folder / "__init__.py"
    assert init.is_file(), f"{folder.relative_to(ROOT)} holds Python files but is not a package"
    assert ast.get_docstring(ast.parse(init.read_text()))


def test_the_command_prints_the_version_of_the_project() -> None:
    command = Path(sys.executable).with_name("interlock")
    printed = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == PYPROJECT["project"]["version"]


def test_a_command_line_that_is_not_understood_exits_with_2() -> None:
    command = Path(sys.executable).with_name("interlock")
    refused = subprocess.run([command, "no-such-command"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "no-such-command" in refused.stderr
    assert refused.stdout == ""

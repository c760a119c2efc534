"""The files and the metadata that a package index receives."""

import email
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAIN = "https://github.com/django-modelcontext/django-modelcontext/blob/main/"
RAW = "https://raw.githubusercontent.com/django-modelcontext/django-modelcontext/main/"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel):
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def test_wheel_contains_every_file_of_the_package_and_nothing_else(wheel):
    tracked = subprocess.run(
        ["git", "ls-files", "django_mcp"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert shipped == set(tracked)


def test_sdist_has_the_package_and_no_tests(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        top = {name.split("/")[1] for name in archive.getnames()}
    assert {"django_mcp", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= top
    assert "tests" not in top


def test_metadata_names_the_authors_and_the_project_urls(metadata):
    assert metadata["Author"] == "The django_mcp contributors"
    labels = {line.split(",")[0] for line in metadata.get_all("Project-URL")}
    assert labels == {"Repository", "Documentation", "Changelog", "Issues"}


def test_readme_links_lead_to_the_repository(metadata):
    links = re.findall(r"\]\(([^)]*)\)", metadata.get_payload())
    assert links and all(link.startswith(("https://", "#")) for link in links)
    ours = [link.removeprefix(MAIN) for link in links if link.startswith(MAIN)]
    ours += [link.removeprefix(RAW) for link in links if link.startswith(RAW)]
    assert "docs/tutorial.md" in ours
    assert [path for path in ours if not (ROOT / path.split("#")[0]).exists()] == []

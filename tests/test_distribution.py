"""What a distribution carries: links that work outside the repository, and its authors, citation and rules."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from opendp_sim import __version__

ROOT = Path(__file__).resolve().parents[1]
HOME = "https://host.example/owner/opendp_sim"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def hook():
    spec = importlib.util.spec_from_file_location("metadata_hook", ROOT / ".ci" / "metadata.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_that_the_readme_names_is_there():
    targets = LINK.findall((ROOT / "README.md").read_text("utf-8"))
    files = [target for target in targets if not target.startswith("https://")]
    assert files
    assert all((ROOT / file).exists() for file in files), files


@pytest.mark.parametrize("home", [HOME, HOME + "/", ""])
def test_links_of_a_distribution_work_anywhere(hook, home, monkeypatch):
    monkeypatch.setenv("OPENDP_SIM_HOME", home)
    metadata: dict = {}
    hook.CustomMetadataHook(str(ROOT), {}).update(metadata)
    text = metadata["readme"]["text"]
    assert all(link.startswith("https://") for link in LINK.findall(text))
    assert "![Left: the true density of 21,438 European cities" in text or not home
    own = [link for link in [*LINK.findall(text), *metadata["urls"].values()] if HOME in link]
    assert bool(own) is bool(home), "an address that nobody stated"
    assert "//" not in "".join(link.removeprefix("https://") for link in own)
    words = (ROOT / "README.md").read_text("utf-8")
    assert (
        re.sub(r"[^\w]", "", LINK.sub("", text))[:200]
        == re.sub(r"[^\w]", "", LINK.sub("", words))[:200]
    )


def test_the_citation_is_of_this_version_and_of_these_authors():
    cited = YAML(typ="safe").load((ROOT / "CITATION.cff").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert cited["version"] == __version__
    assert cited["license"] == project["license"]
    assert cited["authors"] == project["authors"] == [{"name": "the opendp_sim developers"}]
    papers = (ROOT / "docs" / "papers.md").read_text("utf-8").replace("\n", " ")
    assert all(paper["title"] in papers for paper in cited["references"])


def test_security_reports_go_to_no_made_up_address():
    text = (ROOT / ".github" / "SECURITY.md").read_text("utf-8")
    assert "Report a vulnerability" in text
    assert not re.search(r"[\w.]+@[\w.]+|https?://", text)


def test_workflows_and_hooks_run_what_ci_runs():
    read = YAML(typ="safe")
    workflow = read.load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    assert {"run": ".ci/run"} in workflow["jobs"]["run"]["steps"]
    assert workflow["permissions"] == {"contents": "read"}
    hooks = read.load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    for one in hooks:
        command = one["entry"].removesuffix(" --force-exclude")
        assert command in script, command

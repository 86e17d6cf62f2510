"""Makes the README that a wheel carries, whose links work outside the repository.

`OPENDP_SIM_HOME` is the repository's address (CI sets it to the one it runs in). With it every link to a
file is absolute, and the project has addresses. Without it nobody knows an address: the words of such a
link stay, its target goes, and a picture becomes its description.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://)([^)\s]+)\)")


def outside(text: str, home: str) -> str:
    """Return a README with links that work anywhere."""

    def link(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        if not home:
            return f"({words})" if picture else words
        return f"{picture}[{words}]({home}/{'raw' if picture else 'blob'}/HEAD/{target})"

    return _LINK.sub(link, text)


def addresses(home: str) -> dict[str, str]:
    """Return the project's addresses, where its home is known."""
    known = {
        "Source": home,
        "Documentation": f"{home}/blob/HEAD/docs/index.md",
        "Changelog": f"{home}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{home}/issues",
        "Security": f"{home}/security/policy",
    }
    return (known if home else {}) | {"OpenDP": "https://github.com/opendp/opendp"}


class CustomMetadataHook(MetadataHookInterface):
    """Fills in the README and the addresses when a distribution is built."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Read the README below the root, and the home from the environment."""
        home = os.environ.get("OPENDP_SIM_HOME", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": outside(text, home)}
        metadata["urls"] = addresses(home)

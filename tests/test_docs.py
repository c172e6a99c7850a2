"""The pages of docs/ hang together: every page is on the list, every link leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LISTS = (ROOT / "examples/README.md", ROOT / "deploy/README.md")
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *LISTS])


def links(page: Path) -> list[tuple[str, str]]:
    """Path and anchor of each link that stays in the repository."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [(*target.split("#"), "")[:2] for target in found if "://" not in target]


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings}


def test_every_page_is_on_the_list() -> None:
    listed = {path for path, _ in links(ROOT / "docs/index.md")}
    assert {page.name for page in PAGES if page.parent.name == "docs"} - listed == {"index.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_every_link_leads_somewhere(page: Path) -> None:
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{path}#{anchor}"

"""Works that theorems and docstrings name stand in ``docs/references.bib``, and the papers in ``CITATION.cff``."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAME = r"[A-Z][A-Za-z]+(?:-[A-Z][a-z]+)?"
NOBODY = {"Evictions"}  # before a year, and no author
CITED = re.compile(rf"\b({NAME})(?:(?:, | and |, and ){NAME})*(?: et al\.)?,? ((?:19|20)\d\d)\b")


def entries(text: str) -> set[tuple[str, str]]:
    """First author and year of every entry; the papers that the system implements have none before they appear."""
    found = set()
    for entry in re.split(r"^@", text, flags=re.MULTILINE)[1:]:
        author, year = re.search(r"author = \{([^,]+),", entry), re.search(r"year = \{(\d+)\}", entry)
        assert author, entry
        found.add((author[1], year[1] if year else ""))
    return found


def citations(text: str) -> set[tuple[str, str]]:
    """First author and year of all that is cited as "Author, Author 2020" or "Author et al. 2020"."""
    return {(match[1], match[2]) for match in CITED.finditer(" ".join(text.split()))}


def test_every_work_that_is_named_is_listed_and_no_other() -> None:
    listed = entries((ROOT / "docs/references.bib").read_text())
    texts = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    cited = set[tuple[str, str]]().union(*(citations(path.read_text()) for path in texts))
    assert {(author, year) for author, year in cited - listed if author not in NOBODY} == set()
    assert {(author, year) for author, year in listed - cited if year} == set()


def test_citations_are_seen() -> None:
    assert citations("(Bun and Steinke 2016, Lemma 2.3; of pure DP: Dwork, Rothblum, Vadhan 2010)") == {
        ("Bun", "2016"),
        ("Dwork", "2010"),
    }
    assert citations("Source: Nasr et al. 2023, Choquette-Choo, McMahan, Rush, Thakurta 2023") >= {("Nasr", "2023")}
    assert entries("@misc{a,\n  author = {Held, M. and Wolfe, P.},\n  year = {1974},\n}") == {("Held", "1974")}


def test_both_papers_are_to_be_cited() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    bib = (ROOT / "docs/references.bib").read_text()
    for title in re.findall(r"title = \{(.*)\},\n(?:  year.*\n)?  note = \{Paper", bib):
        assert title in text
    assert text.count("  - type: article") == 2


def test_every_decision_has_a_line_in_their_list_under_its_own_title() -> None:
    folder = ROOT / "docs/decisions"
    listed = re.findall(r"^\| (\d+) \| \[(.*)\]\((\S+\.md)\) \| \S", (folder / "README.md").read_text(), re.MULTILINE)
    assert [name for _, _, name in listed] == sorted(path.name for path in folder.glob("0*.md"))
    for number, title, name in listed:
        head = (folder / name).read_text().partition("\n")[0]
        assert int(number) == int(name[:4])
        assert re.fullmatch(rf"# 0*{number}[.:]? {re.escape(title)}", head), name

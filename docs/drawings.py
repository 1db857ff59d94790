"""The drawings of the documentation, as SVG, for light pages and for dark ones. Part of ``make images``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

IMAGES = Path(__file__).parent / "images"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"


@dataclass(frozen=True, kw_only=True)
class Look:
    """Colours of one kind of page."""

    name: str
    ink: str
    faint: str
    private: str
    private_fill: str
    public: str
    public_fill: str
    plain_fill: str


LOOKS = (
    Look(
        name="light",
        ink="#1f2933",
        faint="#52606d",
        private="#b3261e",
        private_fill="#fdeceb",
        public="#00695c",
        public_fill="#e3f3f0",
        plain_fill="#ffffff",
    ),
    Look(
        name="dark",
        ink="#eceff1",
        faint="#b0bec5",
        private="#ff9d94",
        private_fill="#3a2322",
        public="#64d8cb",
        public_fill="#16332f",
        plain_fill="#1e2429",
    ),
)


@dataclass
class Drawing:
    """SVG, piece by piece. Lengths are in pixels of the viewBox."""

    width: int
    height: int
    title: str
    look: Look
    parts: list[str] = field(default_factory=list)

    def box(
        self, x: float, y: float, w: float, h: float, *, fill: str, line: str, dashed: bool = False, round_: float = 8
    ) -> None:
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="{round_}" fill="{fill}" stroke="{line}" '
            f'stroke-width="1.5"{dash}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 14,
        bold: bool = False,
        color: str | None = None,
        anchor: str = "middle",
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{color or self.look.ink}"{weight}>'
            f"{escape(words)}</text>"
        )

    def step(self, x: float, y: float, w: float, head: str, lines: list[str], *, line: str) -> None:
        """A box with a head and what is said about it, 26 + 17 pixels a line high."""
        self.box(x, y, w, 32 + 17 * len(lines), fill=self.look.plain_fill, line=line)
        self.text(x + w / 2, y + 21, head, size=15, bold=True)
        for k, words in enumerate(lines):
            self.text(x + w / 2, y + 40 + 17 * k, words, size=12.5, color=self.look.faint)

    def arrow(self, points: list[tuple[float, float]], *, color: str | None = None, dashed: bool = False) -> None:
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        color = color or self.look.ink
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.7" marker-end="url(#tip)"{dash}/>'
        )

    def dot(self, x: float, y: float, *, color: str, hollow: bool = False, radius: float = 6) -> None:
        fill = self.look.plain_fill if hollow else color
        self.parts.append(f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{fill}" stroke="{color}" stroke-width="1.7"/>')

    def save(self, name: str) -> None:
        tip = (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="{self.look.ink}"/></marker></defs>'
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'font-family="{FONT}"><title>{escape(self.title)}</title>'
        )
        text = "\n".join([head, tip, *self.parts, "</svg>"]) + "\n"
        (IMAGES / f"{name}-{self.look.name}.svg").write_text(text)


def one_idea(look: Look) -> Drawing:
    """Rows to releases, and the one door between private and public."""
    d = Drawing(640, 452, "From private rows to a release: everything private passes one gate.", look)
    d.box(8, 34, 262, 410, fill=look.private_fill, line=look.private, dashed=True, round_=12)
    d.box(370, 34, 262, 410, fill=look.public_fill, line=look.public, dashed=True, round_=12)
    d.text(139, 22, "private: never leaves", color=look.private, bold=True)
    d.text(501, 22, "public: anyone may see it", color=look.public, bold=True)
    left = [
        ("rows", ["one event each, with a time"]),
        ("codes", ["by the public schema; any row fits"]),
        ("bound", ["at most m events a person"]),
        ("cells", ["whole numbers: how many events"]),
        ("counter", ["a running count of each cell,", "with little noise at every tick"]),
    ]
    y = 50.0
    for k, (head, lines) in enumerate(left):
        d.step(22, y, 234, head, lines, line=look.private)
        y += 32 + 17 * len(lines)
        if k < len(left) - 1:
            d.arrow([(139, y), (139, y + 22)])
            y += 25
    d.box(288, 150, 64, 284, fill=look.plain_fill, line=look.ink, round_=6)
    d.text(320, 282, "gate", size=17, bold=True)
    for k, words in enumerate(["adds", "noise"]):
        d.text(320, 302 + 15 * k, words, size=12.5, color=look.faint)
    d.arrow([(256, 390), (287, 390)])
    d.box(284, 66, 72, 50, fill=look.plain_fill, line=look.ink, dashed=True, round_=6)
    d.text(320, 88, "ledger", size=14, bold=True)
    d.text(320, 105, "paid once", size=11.5, color=look.faint)
    d.arrow([(320, 116), (320, 149)], dashed=True)
    right = [
        (346, "measured", ["noisy counts, error known:", "committed first"]),
        (222, "model", ["rows fitted to all measured", "counts: free, no noise, no cost"]),
        (74, "release", ["rows, tables, error bars, claim:", "published second"]),
    ]
    for top, head, lines in right:
        d.step(384, top, 234, head, lines, line=look.public)
    d.arrow([(352, 390), (383, 390)])
    d.arrow([(501, 346), (501, 290)])
    d.arrow([(501, 222), (501, 142)])
    return d


def ticks(look: Look) -> Drawing:
    """Where a row counts that is read while tick 2 is open."""
    d = Drawing(640, 330, "Which tick a row counts in, by its own time and the open tick.", look)
    names = [("tick 0", "closed"), ("tick 1", "closed, empty"), ("tick 2", "open"), ("tick 3", "later")]
    for k, (name, what) in enumerate(names):
        fill = look.public_fill if k == 2 else look.plain_fill
        d.box(20 + 150 * k, 58, 150, 214, fill=fill, line=look.faint, round_=0)
        d.text(95 + 150 * k, 24, name, bold=True)
        d.text(95 + 150 * k, 44, what, size=12.5, color=look.public if k == 2 else look.faint)
    d.text(28, 78, "the row's own time", size=12.5, color=look.faint, anchor="start")
    d.text(28, 262, "where it counts", size=12.5, color=look.faint, anchor="start")
    rows = [
        (60, 345, "late"),
        (368, 368, "on time"),
        (430, 430, "no time"),
        (545, 545, "early: waits"),
    ]
    for own, counts, what in rows:
        hollow = what == "no time"
        d.dot(own, 118, color=look.private, hollow=hollow)
        d.text(own, 104, what, size=12.5)
        if own == counts:
            d.arrow([(own, 126), (own, 214)])
        else:
            d.arrow([(own, 126), (own, 160), (counts, 160), (counts, 214)])
        d.dot(counts, 224, color=look.private)
    d.text(245, 200, "nothing came:", size=12.5, color=look.faint)
    d.text(245, 217, "released all the same", size=12.5, color=look.faint)
    d.arrow([(20, 292), (626, 292)])
    d.text(320, 316, "the public clock: it moves by itself, never by what a row says", size=12.5, color=look.faint)
    return d


def units(look: Look) -> Drawing:
    """What two neighbouring streams differ in."""
    d = Drawing(640, 262, "Neighbouring streams differ in one event, in one person, or in one person's period.", look)
    panels = [
        ('unit = "event"', "one row is there or not", lambda person, tick: (person, tick) == (1, 2)),
        ("a person, for life", "all rows of one person", lambda person, tick: person == 1),  # noqa: ARG005
        ('a person, per = "..."', "one person, one period", lambda person, tick: person == 1 and tick in (2, 3)),
    ]
    rows = {0: [0, 1, 4], 1: [0, 2, 3, 5], 2: [1, 3], 3: [2, 4, 5]}
    for p, (head, what, hit) in enumerate(panels):
        x = 12 + 210 * p
        d.box(x, 34, 196, 170, fill=look.plain_fill, line=look.faint)
        d.text(x + 98, 22, head, bold=True)
        if p == 2:
            for k in range(1, 3):
                d.parts.append(
                    f'<path d="M{x + 36 + 54 * k - 4} 44 V194" stroke="{look.faint}" stroke-dasharray="3 4"/>'
                )
        for person, at in rows.items():
            d.text(x + 18, 67 + 38 * person, "ABCD"[person], size=13, color=look.faint)
            for tick in at:
                chosen = hit(person, tick)
                color = look.private if chosen else look.faint
                d.dot(x + 46 + 27 * tick, 62 + 38 * person, color=color, hollow=not chosen, radius=7 if chosen else 5)
        d.text(x + 98, 224, what, size=13)
    words = "Letters are people, circles are rows over time; filled: what may be there or not."
    d.text(320, 252, words, size=12.5, color=look.faint)
    return d


def draw() -> None:
    """Make every drawing, light and dark."""
    IMAGES.mkdir(exist_ok=True)
    for look in LOOKS:
        one_idea(look).save("one-idea")
        ticks(look).save("ticks")
        units(look).save("units")


if __name__ == "__main__":
    draw()

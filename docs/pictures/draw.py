"""Draws the pictures of docs/: boxes and arrows as plain SVG, readable on light and dark pages.

Run `python docs/pictures/draw.py` after changing one; a test compares the files with it.
"""

from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
FONT = "font-family='system-ui, sans-serif'"
CLOUD, EDGE, WORKER, KUBE = "#dbeafe", "#dcfce7", "#fef3c7", "#ede9fe"


class Picture:
    def __init__(self, width: int, height: int, title: str) -> None:
        self._size, self._title = (width, height), title
        self._parts: list[str] = []

    def area(self, x: int, y: int, width: int, height: int, label: str) -> None:
        """A dashed frame around what belongs together."""
        self._rect(x, y, width, height, "none", "stroke-dasharray='6 4' stroke='#94a3b8'")
        self.text(x + 12, y + 22, label, size=15, weight="bold", anchor="start", fill="#64748b")

    def box(self, x: int, y: int, width: int, height: int, fill: str, *lines: str) -> None:
        """A box; the first line is its name."""
        self._rect(x, y, width, height, fill, "stroke='#475569'")
        top = y + height / 2 - (len(lines) - 1) * 9 + 5
        for number, line in enumerate(lines):
            size, weight = (14, "bold") if number == 0 else (12, "normal")
            self.text(x + width / 2, top + number * 18, line, size=size, weight=weight)

    def arrow(self, x1: int, y1: int, x2: int, y2: int, label: str = "", dy: int = -8) -> None:
        self._parts.append(
            f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' stroke='#475569' stroke-width='1.8' "
            "marker-end='url(#head)'/>"
        )
        if label:
            self.label((x1 + x2) / 2, (y1 + y2) / 2 + dy, label)

    def label(self, x: float, y: float, text: str) -> None:
        width = 6.6 * len(text) + 8
        self._parts.append(
            f"<rect x='{x - width / 2:.0f}' y='{y - 12:.0f}' width='{width:.0f}' height='17' "
            "fill='white' fill-opacity='0.92'/>"
        )
        self.text(x, y, text, size=12)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: int = 12,
        weight: str = "normal",
        anchor: str = "middle",
        fill: str = "#0f172a",
    ) -> None:
        self._parts.append(
            f"<text x='{x:.0f}' y='{y:.0f}' {FONT} font-size='{size}' font-weight='{weight}' "
            f"text-anchor='{anchor}' fill='{fill}'>{escape(text)}</text>"
        )

    def _rect(self, x: int, y: int, width: int, height: int, fill: str, stroke: str) -> None:
        self._parts.append(
            f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='8' fill='{fill}' "
            f"{stroke} stroke-width='1.5'/>"
        )

    def svg(self) -> str:
        width, height = self._size
        return "\n".join(
            [
                f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' "
                f"width='{width}' height='{height}' role='img'>",
                f"<title>{escape(self._title)}</title>",
                "<defs><marker id='head' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' "
                "markerHeight='7' orient='auto-start-reverse'>"
                "<path d='M0 0L10 5L0 10z' fill='#475569'/></marker></defs>",
                f"<rect width='{width}' height='{height}' fill='white' rx='10'/>",
                *self._parts,
                "</svg>\n",
            ]
        )


def architecture() -> Picture:
    picture = Picture(920, 470, "edgeai: one control plane for jobs that span cloud and edge")
    picture.area(20, 20, 430, 430, "cloud")
    picture.box(50, 65, 370, 70, KUBE, "Kubernetes API", "Models · Datasets · services · jobs")
    picture.box(
        *(50, 215, 370, 90), CLOUD, "GlobalManager",
        "observe → plan → apply, one engine for every kind",
        "keeps no state of its own",
    )  # fmt: skip
    picture.box(120, 370, 230, 60, WORKER, "cloud worker", "the large model, for hard samples")
    picture.arrow(150, 135, 150, 213, "watch")
    picture.arrow(310, 213, 310, 137, "Deployments, status")
    picture.area(560, 20, 340, 430, "every edge node")
    picture.box(
        *(590, 190, 280, 110), EDGE, "LocalController", "tasks and reports in SQLite:",
        "committed, then acknowledged", "goes on when the cloud is away",
    )  # fmt: skip
    picture.box(615, 370, 230, 60, WORKER, "edge worker", "the small model, for every sample")
    picture.arrow(422, 240, 588, 240, "desired set")
    picture.arrow(588, 285, 422, 285, "latest state", dy=20)
    picture.label(505, 262, "one WebSocket")
    picture.arrow(730, 370, 730, 302, "counts", dy=4)
    picture.arrow(613, 400, 352, 400, "hard samples")
    return picture


def relay() -> Picture:
    picture = Picture(920, 330, "The relay: one outbound connection is enough for an edge node")
    picture.area(20, 20, 400, 290, "edge node, behind NAT")
    picture.box(45, 70, 150, 70, WORKER, "edge worker", "trainer")
    picture.box(
        *(245, 65, 150, 220), EDGE, "LocalController", "HTTP proxy for the", "workers of the node"
    )
    picture.arrow(197, 105, 243, 105)
    picture.label(145, 160, "CONNECT, name and secret")
    picture.area(560, 20, 340, 290, "cloud")
    picture.box(
        *(585, 65, 150, 220), CLOUD, "GlobalManager", "is the target named", "in the assignment?"
    )
    picture.box(775, 70, 110, 70, KUBE, "Service", "cluster IP")
    picture.box(775, 205, 110, 80, WORKER, "cloud worker", "aggregator")
    picture.arrow(737, 105, 773, 105)
    picture.arrow(830, 140, 830, 203)
    picture.arrow(397, 110, 583, 110, "session: tasks, reports")
    picture.arrow(397, 230, 583, 230, "relay: streams of bytes")
    picture.label(490, 264, "both dialled by the edge,")
    picture.label(490, 282, "to one port")
    return picture


def way(title: str, steps: list[tuple[str, str, str]]) -> Picture:
    """A chain of boxes: (fill, name, what happens there)."""
    columns, width, height, gap = 4, 195, 66, 38
    rows = -(-len(steps) // columns)
    picture = Picture(columns * (width + gap) + 2, rows * (height + 44) + 20, title)
    for number, (fill, name, text) in enumerate(steps):
        row, column = divmod(number, columns)
        if row % 2:
            column = columns - 1 - column  # the way turns at the end of a row
        x, y = 20 + column * (width + gap), 20 + row * (height + 44)
        picture.box(x, y, width, height, fill, name, text)
        if number + 1 == len(steps):
            continue
        if (number + 1) % columns == 0:
            picture.arrow(x + width // 2, y + height, x + width // 2, y + height + 42)
        elif row % 2:
            picture.arrow(x, y + height // 2, x - gap + 2, y + height // 2)
        else:
            picture.arrow(x + width, y + height // 2, x + width + gap - 2, y + height // 2)
    return picture


def pictures() -> dict[str, Picture]:
    down = [
        (KUBE, "CR", "kubectl apply"),
        (CLOUD, "informer", "watch, never poll"),
        (CLOUD, "work queue", "one at a time per key"),
        (CLOUD, "observe", "from caches, no request"),
        (CLOUD, "plan, assignments", "pure functions of a kind"),
        (CLOUD, "desired set", "per node, newest wins"),
        (CLOUD, "session", "Assign over WebSocket"),
        (EDGE, "ledger", "SQLite commit, then Ack"),
    ]
    up = [
        (WORKER, "worker", "its totals, as HTTP POST"),
        (EDGE, "worker API", "who are you? (secret)"),
        (EDGE, "ledger", "SQLite commit, then 200"),
        (EDGE, "link", "newest Report per worker"),
        (CLOUD, "session", "is it bound to this node?"),
        (CLOUD, "inbox", "coalesced per worker"),
        (CLOUD, "fold", "pure: report → patch"),
        (KUBE, "status", "PATCH, then Ack"),
    ]
    round_ = [
        (CLOUD, "aggregator", "has the common weights"),
        (WORKER, "trainer", "fetches them in pieces"),
        (WORKER, "train", "with this node's data"),
        (WORKER, "upload", "pieces, each checked"),
        (CLOUD, "commit", "on disk, then answered"),
        (CLOUD, "close", "all present have sent"),
        (CLOUD, "aggregate", "slice by slice"),
        (CLOUD, "next round", "or save the Model"),
    ]
    return {
        "architecture.svg": architecture(),
        "way-of-a-task.svg": way("The way of a task", down),
        "way-of-a-status.svg": way("The way of a status", up),
        "relay.svg": relay(),
        "round.svg": way("A round of federated learning", round_),
    }


def main() -> None:
    for name, picture in pictures().items():
        (HERE / name).write_text(picture.svg(), encoding="utf-8")


if __name__ == "__main__":
    main()

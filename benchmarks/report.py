"""What a workload found: rows of a table, limits that must hold, remarks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Limit:
    """A promise of the project: ``value`` is at most ``at_most``."""

    name: str
    value: float
    at_most: float

    @property
    def holds(self) -> bool:
        return self.value <= self.at_most


@dataclass
class Report:
    """``columns`` name the cells of each row; a cell that was not measured is None."""

    columns: list[str]
    rows: list[list[str | float | None]] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def text(self) -> str:
        """The table, the limits and the remarks, for a terminal."""
        cells = [self.columns, *([cell_text(cell) for cell in row] for row in self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.columns))]
        lines = [
            "  ".join(
                cell.ljust(width) if column == 0 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        lines += [
            f"{'holds ' if limit.holds else 'BROKEN'}  {limit.name}: {limit.value:.3g} (at most {limit.at_most:.3g})"
            for limit in self.limits
        ]
        return "\n".join(lines + self.remarks)

    def data(self) -> dict[str, object]:
        """The same for a JSON file."""
        return {
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
            "limits": [asdict(limit) | {"holds": limit.holds} for limit in self.limits],
            "remarks": self.remarks,
        }


def cell_text(cell: str | float | None) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    return f"{cell:.0f}" if abs(cell) >= 1000 or cell == int(cell) else f"{cell:.3g}"

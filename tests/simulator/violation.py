"""A promise that was broken, with all that is needed to see it broken again."""

from collections.abc import Sequence

from engine.core.records import Record
from engine.store.gate import AuditRow


class Violation(Exception):
    """Raised where the simulator sees a promise broken. Seed and step are added on the way out."""

    def __init__(self, what: str, story: Sequence[str] = (), seed: int = -1, step: int = -1) -> None:
        self.what = what
        self.story = tuple(story)
        self.seed = seed
        self.step = step
        super().__init__(what, self.story, seed, step)

    def __str__(self) -> str:
        told = "".join(f"\n    {line}" for line in self.story)
        return f"seed {self.seed}, step {self.step}: {self.what}{told}"


def story(rows: Sequence[AuditRow], last: int = 14) -> list[str]:
    """The last rows of a trail, as a person reads them."""
    return [
        f"{row.at / 1e6:.3f} {row.ref.kind} {row.ref} v{row.version} {row.machine}:"
        f" {row.from_state or ''} --{row.event}--> {row.to_state or ''}"
        f" [signal {row.cause} {row.source}] {row.reason or ''}".rstrip()
        for row in rows[-last:]
    ]


def brief(record: Record) -> str:
    """A record without its plan and without what it has not got."""
    told = {name: getattr(record, name) for name in type(record).__slots__ if name != "plan"}
    return ", ".join(f"{name}={value}" for name, value in told.items() if value or name == "exit_code")

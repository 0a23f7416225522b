"""What the core refuses, and how it says so. A refusal changes nothing."""


class CoreError(Exception):
    """The core was asked something that it cannot answer."""


class Refused(CoreError):
    """A command cannot be granted as things are. The sentence says why and what is possible instead."""

    def __init__(self, what: str, why: str, instead: str = "") -> None:
        self.what = what
        self.why = why
        self.instead = instead
        super().__init__(what, why, instead)

    def __str__(self) -> str:
        return f"{self.what}: {self.why}" + (f"; {self.instead}" if self.instead else "")


class FuseBlown(CoreError):
    """One signal moved one entity more often than any document allows: a cycle that must not go on."""

    def __init__(self, entity: str, signal: int, story: tuple[str, ...]) -> None:
        self.entity = entity
        self.signal = signal
        self.story = story
        super().__init__(f"{entity} moved {len(story)} times for signal {signal}: {' > '.join(story)}")

"""DraftStatistics: counts of drafted, checked and accepted tokens, and the seconds saved."""

from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from sharpi.settings import DraftKind
from sharpi.speculation.draft import Draft


class KindCount(Struct):
    """The numbers of proposed, checked and accepted tokens, for one kind."""

    num_proposed: int = 0
    num_checked: int = 0
    num_accepted: int = 0


class DraftStatistics(Struct):
    """The counts of one answer, or of all answers of an engine; `seconds` are of decoding steps."""

    kinds: dict[DraftKind, KindCount] = field(default_factory=dict)
    num_steps: int = 0
    num_tokens: int = 0
    seconds: float = 0.0
    seconds_without: float = 0.0  # seconds that the same tokens would have taken in single steps
    drafting_seconds: float = 0.0  # seconds spent on finding drafts

    def add_step(self, num_tokens: int, seconds: float, seconds_without: float) -> None:
        """Counts a sequence's share of a step: its tokens, and seconds with and without drafts."""
        self.num_steps += 1
        self.num_tokens += num_tokens
        self.seconds += seconds
        self.seconds_without += seconds_without

    def add_skipped(self, num_steps: int, usual: float) -> None:
        """Counts `num_steps` steps of one token without a search, of `usual` seconds each."""
        self.add_step(num_steps, num_steps * usual, num_steps * usual)
        self.num_steps += num_steps - 1

    def add_draft(self, draft: Draft, num_checked: int, num_accepted: int) -> None:
        """Counts a draft, of which a step checked `num_checked` tokens, perhaps none."""
        count = self.kinds.setdefault(draft.kind, KindCount())
        count.num_proposed += len(draft.tokens)
        count.num_checked += num_checked
        count.num_accepted += num_accepted

    def to_dict(self) -> dict[str, Any]:
        """Returns the counts and seconds as plain types for JSON."""
        return {
            "steps": self.num_steps,
            "tokens_per_step": self.tokens_per_step,
            "proposed": self.num_proposed,
            "checked": self.num_checked,
            "accepted": self.num_accepted,
            "kinds": {
                kind: {name.removeprefix("num_"): count for name, count in asdict(own).items()}
                for kind, own in self.kinds.items()
            },
            "drafting_seconds": self.drafting_seconds,
            "seconds_saved": self.seconds_saved,
        }

    @property
    def num_proposed(self) -> int:
        """The number of drafted tokens, checked or not, of all kinds."""
        return sum(count.num_proposed for count in self.kinds.values())

    @property
    def num_checked(self) -> int:
        """Of these, the number that steps have checked."""
        return sum(count.num_checked for count in self.kinds.values())

    @property
    def num_accepted(self) -> int:
        """Of these, the number that the model accepted."""
        return sum(count.num_accepted for count in self.kinds.values())

    @property
    def tokens_per_step(self) -> float:
        """The mean number of tokens per step; 0 without a step."""
        return self.num_tokens / self.num_steps if self.num_steps else 0.0

    @property
    def seconds_saved(self) -> float:
        """The seconds that drafts saved; negative if they took more than they saved."""
        return self.seconds_without - self.seconds - self.drafting_seconds

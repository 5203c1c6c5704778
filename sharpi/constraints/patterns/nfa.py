"""Nfa: the nondeterministic finite automaton of a regular expression (Thompson's construction)."""

from re import _parser  # type: ignore[attr-defined]
from typing import Any

from sharpi.constraints.patterns.characters import Characters, complement, in_class
from sharpi.errors import GrammarError

_MAX_NODES = 1500
_ANY_BUT_LINE_END = complement(((10, 10),))


class Nfa:
    """An automaton with edges that read one character (`reading`) and epsilon edges (`free`).

    Some epsilon edges apply only at the beginning or at the end of the string.
    """

    def __init__(self, *, is_union: bool, ends_strictly: bool, most_steps: int) -> None:
        self.most_steps = most_steps
        self._is_wide, self._ends_strictly = is_union, ends_strictly
        self.num_steps = 0
        self.free: list[list[tuple[str, int]]] = []
        self.reading: list[list[tuple[Characters, int]]] = []

    def node(self) -> int:
        """Adds a node and returns its number; raises GrammarError if there are too many."""
        if len(self.free) >= _MAX_NODES:
            raise GrammarError("a pattern that must not match is too long")
        self.free.append([])
        self.reading.append([])
        return len(self.free) - 1

    def add(self, parts: Any, begin: int) -> int:
        """Adds a sequence parsed by Python's `re`, from node `begin` on; returns its last node."""
        for kind, value in parts:
            begin = self._add_one(str(kind), value, begin)
        return begin

    def _add_one(self, kind: str, value: Any, begin: int) -> int:
        match kind:
            case "LITERAL":
                return self._read(((value, value),), begin)
            case "NOT_LITERAL":
                return self._read(complement(((value, value),)), begin)
            case "ANY":
                return self._read(_ANY_BUT_LINE_END, begin)
            case "IN":
                return self._read(in_class(value, is_union=self._is_wide), begin)
            case "AT":
                return self._at(str(value), begin)
            case "BRANCH":
                return self._branch(value[1], begin)
            case "SUBPATTERN" if not value[1] and not value[2]:
                return self.add(value[3], begin)
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(value[0], value[1], value[2], begin)
        raise GrammarError(f"not supported in a pattern that must not match: {kind.lower()}")

    def _read(self, characters: Characters, begin: int) -> int:
        end = self.node()
        self.reading[begin].append((characters, end))
        return end

    def _at(self, where: str, begin: int) -> int:
        if where not in ("AT_BEGINNING", "AT_END"):
            raise GrammarError(f"not supported in a pattern that must not match: {where.lower()}")
        end = self.node()
        self.free[begin].append((where, end))
        if where == "AT_END" and not self._ends_strictly:
            # Python's `$` is also before a line end that is the last character.
            self.free[self._read(((10, 10),), begin)].append((where, end))
        return end

    def _branch(self, branches: Any, begin: int) -> int:
        end = self.node()
        for each in branches:
            self.free[self.add(each, begin)].append(("", end))
        return end

    def _repeat(self, low: int, high: Any, parts: Any, begin: int) -> int:
        for _ in range(low):
            begin = self.add(parts, self._skip(begin))
        if high == _parser.MAXREPEAT:
            loop = self.node()
            self.free[begin].append(("", loop))
            self.free[self.add(parts, loop)].append(("", loop))
            return loop
        end = self.node()
        for _ in range(high - low):
            self.free[begin].append(("", end))
            begin = self.add(parts, self._skip(begin))
        self.free[begin].append(("", end))
        return end

    def _skip(self, begin: int) -> int:
        end = self.node()
        self.free[begin].append(("", end))
        return end

    def closure(self, nodes: frozenset[int], *at: str) -> frozenset[int]:
        """Returns the epsilon closure: the nodes, and all that epsilon edges lead to.

        `at`: the anchors that match at this position, AT_BEGINNING or AT_END.
        """
        found, left = set(nodes), list(nodes)
        while left:
            for where, node in self.free[left.pop()]:
                if (not where or where in at) and node not in found:
                    found.add(node)
                    left.append(node)
        return frozenset(found)

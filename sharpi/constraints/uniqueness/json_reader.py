"""Reader: follows a JSON text byte by byte and finds repeated items of unique arrays.

Its states are immutable, so that each token can be tried.
"""

from typing import NamedTuple, Optional, TypeAlias

from sharpi.constraints.uniqueness.canonical_json import (
    CanonicalContainer,
    CanonicalValue,
    canonical_scalar,
    plain_literal,
)
from sharpi.constraints.uniqueness.number_range import is_plain_number
from sharpi.constraints.uniqueness.uniqueness_plan import (
    PlanNode,
    ScalarSet,
    UniquenessPlan,
    UniquenessRule,
)

_QUOTE, _BACKSLASH, _COMMA, _OPEN_OBJECT, _OPEN_ARRAY = b'"\\,{['
_CLOSING, _BLANKS, _COLON = b"}]", b" \t\r\n", b":"[0]
_REDUNDANT_ESCAPES = b"u/"
_NOWHERE = PlanNode({})
_MAX_CHOICES = 64


ScalarChoice: TypeAlias = tuple[ScalarSet, frozenset[bytes]]  # allowed values, used values


class Frame(NamedTuple):
    """An object or array that the text has opened and not closed yet."""

    parent: Optional["Frame"]
    node: PlanNode
    is_object: bool
    rule: UniquenessRule | None  # of an array whose items have to differ
    is_in_unique_array: bool  # whether this is, or is within, an array with a rule
    num: int = 0  # values that have ended
    name: bytes = b""  # of the newest property
    wants_name: bool = False
    members: (
        tuple[tuple[bytes, CanonicalValue], ...] | tuple[CanonicalValue, ...]
    ) = ()  # within unique arrays


class State(NamedTuple):
    """The reader's state after a prefix of a JSON text.

    `choice`: the allowed and the used values of the scalar that has begun.
    """

    frame: Frame | None = None
    text: bytes = b""  # the first bytes of the scalar or name that has begun
    is_name: bool = False
    is_escaped: bool = False
    choice: ScalarChoice | None = None

    @property
    def is_in_string(self) -> bool:
        """True within a JSON string."""
        return self.text[:1] == b'"'

    @property
    def is_in_unique_array(self) -> bool:
        """True within an array whose items must be unique."""
        return self.frame is not None and self.frame.is_in_unique_array


class Reader:
    """Reads JSON texts and checks them against one uniqueness plan."""

    def __init__(self, plan: UniquenessPlan) -> None:
        self._plan = plan
        self._choices: dict[int, tuple[Frame | None, ScalarChoice | None]] = {}  # by a frame's id

    def read(self, state: State, data: bytes) -> State | None:
        """Returns the state after more bytes of valid JSON; None if these bytes are not allowed.

        Bytes are not allowed if they repeat an item of a unique array, or can only lead to repeated
        items.
        """
        for byte in data:
            after = self._next(state, byte)
            if after is None:
                return None
            state = after
        return state if _is_alive(state) else None

    def choice(self, state: State) -> ScalarChoice | None:
        """Returns the allowed and used values of the scalar that has begun or may come next."""
        return state.choice if state.text else self._choice(state.frame)

    def has_few_values(self, state: State) -> bool:
        """Returns whether an enclosing array may run out of unused values."""
        frame = state.frame
        while frame is not None and frame.is_in_unique_array:
            if frame.rule is not None and frame.rule.num_values is not None:
                return True
            frame = frame.parent
        return False

    def _next(self, state: State, byte: int) -> State | None:
        if state.is_in_string:
            return self._in_string(state, byte)
        if not state.text:
            return self._outside(state, byte)
        if byte in b",]}" or byte in _BLANKS:
            ended = self._end_scalar(state)
            return None if ended is None else self._outside(ended, byte)
        return state._replace(text=state.text + bytes([byte]))

    def _in_string(self, state: State, byte: int) -> State | None:
        is_kept = state.is_name or state.is_in_unique_array
        text = state.text + bytes([byte]) if is_kept else state.text
        if state.is_escaped:
            is_second = state.choice is not None and byte in _REDUNDANT_ESCAPES
            return None if is_second else state._replace(text=text, is_escaped=False)
        if byte == _BACKSLASH:
            return state._replace(text=text, is_escaped=True)
        if byte != _QUOTE:
            return state._replace(text=text)
        if state.is_name and state.frame is not None:
            return State(state.frame._replace(name=canonical_scalar(text), wants_name=False))
        return self._end_scalar(state._replace(text=text))

    def _outside(self, state: State, byte: int) -> State | None:
        frame = state.frame
        if byte in _BLANKS or byte == _COLON:
            return state
        if byte in _CLOSING:
            return None if frame is None else self._close(frame)
        if byte == _COMMA:
            return _after_comma(frame)
        if byte == _QUOTE and frame is not None and frame.wants_name:
            return State(frame, b'"', is_name=True)
        if byte in (_OPEN_OBJECT, _OPEN_ARRAY):
            return State(self._opened(frame, byte))
        return State(frame, bytes([byte]), choice=self._choice(frame))

    def _choice(self, frame: Frame | None) -> ScalarChoice | None:
        """Returns the allowed and used values of a scalar that comes next, cached by frame."""
        known = self._choices.get(id(frame))
        if known is None:
            if len(self._choices) >= _MAX_CHOICES:
                self._choices.clear()
            known = self._choices[id(frame)] = frame, _choice(frame)
        return known[1]

    def _opened(self, frame: Frame | None, byte: int) -> Frame:
        node = self._plan_node(frame)
        is_object = byte == _OPEN_OBJECT
        rule = None if is_object else node.rule
        is_in_unique_array = rule is not None or (frame is not None and frame.is_in_unique_array)
        return Frame(frame, node, is_object, rule, is_in_unique_array, wants_name=is_object)

    def _plan_node(self, frame: Frame | None) -> PlanNode:
        """Returns the plan's node for the next value in a frame, or for the document if None."""
        if frame is None:
            return self._plan[0]
        node = frame.node
        number = (
            node.names.get(frame.name, node.other) if frame.is_object else node.of_item(frame.num)
        )
        return _NOWHERE if number < 0 else self._plan[number]

    def _close(self, frame: Frame) -> State | None:
        if not frame.is_in_unique_array:
            return _ended(frame.parent, None)
        members = dict(frame.members) if frame.is_object else frame.members  # type: ignore[arg-type]
        return _ended(frame.parent, CanonicalContainer(members))  # type: ignore[arg-type]

    def _end_scalar(self, state: State) -> State | None:
        if state.choice is not None:
            is_number = state.text[0] in b"-0123456789"
            if state.text in state.choice[1] or (is_number and not is_plain_number(state.text)):
                return None
        return _ended(
            state.frame, canonical_scalar(state.text) if state.is_in_unique_array else None
        )


def _ended(frame: Frame | None, key: CanonicalValue | None) -> State | None:
    """Returns the state after a value within `frame` ends; None if the value repeats an item.

    `key`: the canonical form of the value; None if no enclosing array has to be unique.
    """
    if frame is None:
        return State()
    if key is None or not frame.is_in_unique_array:
        return State(frame._replace(num=frame.num + 1))
    if frame.rule is not None and key in frame.members:
        return None
    new = (frame.name, key) if frame.is_object else key
    return State(frame._replace(num=frame.num + 1, members=(*frame.members, new)))  # type: ignore[arg-type]


def _after_comma(frame: Frame | None) -> State | None:
    if frame is None:
        return None
    rule = frame.rule
    if rule is not None and rule.num_values is not None and frame.num >= rule.num_values:
        return None
    return State(frame._replace(wants_name=True) if frame.is_object else frame)


def _is_alive(state: State) -> bool:
    """Returns whether a scalar that has begun can still become an unused value."""
    if state.choice is None:
        return True
    scalars, used = state.choice
    if state.is_in_string and not any(each.startswith(state.text) for each in used):
        return True
    return scalars.has_other(state.text, used)


def _choice(frame: Frame | None) -> ScalarChoice | None:
    """Returns the allowed and the used values of a scalar that comes next in a frame.

    Returns None if the scalar is the unique key of no enclosing array.
    """
    if frame is None or not frame.is_in_unique_array:
        return None
    scalars: ScalarSet | None = None
    used: set[bytes] = set()
    path: tuple[Frame, ...] = ()  # from the item to the scalar
    each: Frame | None = frame
    while each is not None and each.is_in_unique_array:
        if each.rule is not None:
            found = _own_scalars(each.rule, path)
            if found is not None:
                scalars = scalars or found
                used |= {literal for key in each.members for literal in _used_value(key, path)}
        path = (each, *path)
        each = each.parent
    return None if scalars is None else (scalars, frozenset(used))


def _own_scalars(rule: UniquenessRule, path: tuple[Frame, ...]) -> ScalarSet | None:
    if not path:
        return rule.scalars
    key = rule.objects if path[0].is_object else rule.arrays
    steps = tuple(each.name if each.is_object else each.num for each in path)
    return key.scalars if key is not None and key.path == steps else None


def _used_value(key: object, path: tuple[Frame, ...]) -> list[bytes]:
    """Returns a list with the JSON text of the scalar at `path` in an earlier item.

    `key`: the canonical form of that item. `path`: the frames from the new item to its scalar that
    comes next. The list is empty if the items differ before this scalar.
    """
    if not path and isinstance(key, bytes) and key[:1] == b'"':
        return [key]
    for frame in path:
        if (
            not isinstance(key, CanonicalContainer)
            or isinstance(key.members, dict) != frame.is_object
        ):
            return []
        if isinstance(key.members, dict):
            if any(key.members.get(name) != value for name, value in dict(frame.members).items()):  # type: ignore[arg-type]
                return []
            key = key.members.get(frame.name)
        else:
            if key.members[: frame.num] != frame.members or len(key.members) <= frame.num:
                return []
            key = key.members[frame.num]
    literal = None if key is None else plain_literal(key)  # type: ignore[arg-type]
    return [] if literal is None else [literal]

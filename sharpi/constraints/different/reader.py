"""Reader: follows a JSON text byte by byte, and tells where an array has the same item twice.

Its states are never changed, so that each token can be tried.
"""

from typing import NamedTuple, Optional, TypeAlias

from sharpi.constraints.different.leaf import Leaf, Place, Plan, Rule
from sharpi.constraints.different.numbers import is_plain_number
from sharpi.constraints.different.spelling import Key, Whole, plain_spelling, scalar_key

_QUOTE, _BACKSLASH, _COMMA, _OPEN_OBJECT, _OPEN_ARRAY = b'"\\,{['
_CLOSING, _BLANKS, _COLON = b"}]", b" \t\r\n", b":"[0]
_SECOND_SPELLINGS = b"u/"
_NOWHERE = Place({})
_MAX_CHOICES = 64


Choice: TypeAlias = tuple[Leaf, frozenset[bytes]]  # what a scalar may be, and what is taken


class Frame(NamedTuple):
    """An object or array that has not ended."""

    parent: Optional["Frame"]
    place: Place
    is_object: bool
    rule: Rule | None  # of an array whose items have to differ
    is_watched: bool  # whether it is, or is in, such an array
    num: int = 0  # values that have ended
    name: bytes = b""  # of the newest property
    wants_name: bool = False
    members: tuple[tuple[bytes, Key], ...] | tuple[Key, ...] = ()  # where it is watched


class State(NamedTuple):
    """A place in a text; `leaf` are the scalar's values and those that it must not have."""

    frame: Frame | None = None
    text: bytes = b""  # the scalar or name that has begun
    is_name: bool = False
    is_escaped: bool = False
    leaf: Choice | None = None

    @property
    def is_in_text(self) -> bool:
        """True within a string."""
        return self.text[:1] == b'"'

    @property
    def is_watched(self) -> bool:
        """True within an array whose items have to differ."""
        return self.frame is not None and self.frame.is_watched


class Reader:
    """Reads documents of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._choices: dict[int, tuple[Frame | None, Choice | None]] = {}  # by a frame's id

    def read(self, state: State, data: bytes) -> State | None:
        """Returns the state after more bytes of valid JSON; None if they must not come.

        They must not where an item would be there already, or could not become another one.
        """
        for byte in data:
            after = self._next(state, byte)
            if after is None:
                return None
            state = after
        return state if _is_alive(state) else None

    def leaf(self, state: State) -> Choice | None:
        """Returns the choice for the scalar that has begun or may come next."""
        return state.leaf if state.text else self._leaf(state.frame)

    def is_counted(self, state: State) -> bool:
        """Returns whether the values of an array that has begun may be used up."""
        frame = state.frame
        while frame is not None and frame.is_watched:
            if frame.rule is not None and frame.rule.num_values is not None:
                return True
            frame = frame.parent
        return False

    def _next(self, state: State, byte: int) -> State | None:
        if state.is_in_text:
            return self._in_text(state, byte)
        if not state.text:
            return self._outside(state, byte)
        if byte in b",]}" or byte in _BLANKS:
            ended = self._end_scalar(state)
            return None if ended is None else self._outside(ended, byte)
        return state._replace(text=state.text + bytes([byte]))

    def _in_text(self, state: State, byte: int) -> State | None:
        is_kept = state.is_name or state.is_watched
        text = state.text + bytes([byte]) if is_kept else state.text
        if state.is_escaped:
            is_second = state.leaf is not None and byte in _SECOND_SPELLINGS
            return None if is_second else state._replace(text=text, is_escaped=False)
        if byte == _BACKSLASH:
            return state._replace(text=text, is_escaped=True)
        if byte != _QUOTE:
            return state._replace(text=text)
        if state.is_name and state.frame is not None:
            return State(state.frame._replace(name=scalar_key(text), wants_name=False))
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
        return State(frame, bytes([byte]), leaf=self._leaf(frame))

    def _leaf(self, frame: Frame | None) -> Choice | None:
        """Returns the choice for a scalar that comes next; remembers it for a few frames."""
        known = self._choices.get(id(frame))
        if known is None:
            if len(self._choices) >= _MAX_CHOICES:
                self._choices.clear()
            known = self._choices[id(frame)] = frame, _leaf(frame)
        return known[1]

    def _opened(self, frame: Frame | None, byte: int) -> Frame:
        place = self._place(frame)
        is_object = byte == _OPEN_OBJECT
        rule = None if is_object else place.rule
        is_watched = rule is not None or (frame is not None and frame.is_watched)
        return Frame(frame, place, is_object, rule, is_watched, wants_name=is_object)

    def _place(self, frame: Frame | None) -> Place:
        """Returns the place of the value that comes next."""
        if frame is None:
            return self._plan[0]
        place = frame.place
        number = (
            place.names.get(frame.name, place.other)
            if frame.is_object
            else place.of_item(frame.num)
        )
        return _NOWHERE if number < 0 else self._plan[number]

    def _close(self, frame: Frame) -> State | None:
        if not frame.is_watched:
            return _ended(frame.parent, None)
        members = frame.members
        return _ended(frame.parent, Whole(dict(members) if frame.is_object else members))  # type: ignore[arg-type]

    def _end_scalar(self, state: State) -> State | None:
        if state.leaf is not None:
            is_number = state.text[0] in b"-0123456789"
            if state.text in state.leaf[1] or (is_number and not is_plain_number(state.text)):
                return None
        return _ended(state.frame, scalar_key(state.text) if state.is_watched else None)


def _ended(frame: Frame | None, key: Key | None) -> State | None:
    """Returns the state after a value of `frame`; None if its array has the same item."""
    if frame is None:
        return State()
    if key is None or not frame.is_watched:
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
    """Returns whether a scalar that has begun can become one that is not taken."""
    if state.leaf is None:
        return True
    leaf, taken = state.leaf
    if state.is_in_text and not any(each.startswith(state.text) for each in taken):
        return True
    return leaf.has_other(state.text, taken)


def _leaf(frame: Frame | None) -> Choice | None:
    """Returns what a scalar may be that comes next in a frame, and which values it must not have.

    None if no array around tells its items apart by this scalar.
    """
    if frame is None or not frame.is_watched:
        return None
    leaf: Leaf | None = None
    taken: set[bytes] = set()
    path: tuple[Frame, ...] = ()  # from the item to the scalar
    each: Frame | None = frame
    while each is not None and each.is_watched:
        if each.rule is not None:
            found = _own_leaf(each.rule, path)
            if found is not None:
                leaf = leaf or found
                taken |= {spelled for key in each.members for spelled in _taken(key, path)}
        path = (each, *path)
        each = each.parent
    return None if leaf is None else (leaf, frozenset(taken))


def _own_leaf(rule: Rule, path: tuple[Frame, ...]) -> Leaf | None:
    if not path:
        return rule.scalars
    way = rule.objects if path[0].is_object else rule.arrays
    steps = tuple(each.name if each.is_object else each.num for each in path)
    return way.leaf if way is not None and way.path == steps else None


def _taken(key: object, path: tuple[Frame, ...]) -> list[bytes]:
    """Returns the scalar of an item at a path, if what is before it is as in the path."""
    if not path and isinstance(key, bytes) and key[:1] == b'"':
        return [key]
    for frame in path:
        if not isinstance(key, Whole) or isinstance(key.members, dict) != frame.is_object:
            return []
        if isinstance(key.members, dict):
            if any(key.members.get(name) != value for name, value in dict(frame.members).items()):  # type: ignore[arg-type]
                return []
            key = key.members.get(frame.name)
        else:
            if key.members[: frame.num] != frame.members or len(key.members) <= frame.num:
                return []
            key = key.members[frame.num]
    spelled = None if key is None else plain_spelling(key)  # type: ignore[arg-type]
    return [] if spelled is None else [spelled]

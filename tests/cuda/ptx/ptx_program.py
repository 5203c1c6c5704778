"""Lowers an entry point to rows: registers, literals and addresses all become rows of lanes."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from ptx_module import Entry, Instruction, Module, PtxError, Variable, immediate

GAP = 64  # bytes that belong to nobody, around variables in shared memory
MAX_OPERANDS = 19
_SPECIAL = re.compile(r"%(tid|ntid|ctaid|nctaid)\.([xyz])|%(laneid|warpid)")
_ADDRESS = re.compile(r"\[\s*([%\w$]+)\s*(?:\+\s*(-?\w+))?\s*\]")
_CLOCKS = {"%clock", "%clock64", "%globaltimer"}
_MAY_INVERT = ("setp", "vote", "bar", "barrier")
Operation = Callable[[str], int]


@dataclass(frozen=True)
class Placed:
    """A variable's place in shared memory."""

    offset: int
    num_bytes: int


@dataclass
class Program:
    """What the engine runs: 24 numbers an instruction, the rows, and the sizes of memories."""

    entry: Entry
    code: list[list[int]] = field(default_factory=list)
    constants: dict[int, int] = field(default_factory=dict)  # value: row
    specials: dict[str, int] = field(default_factory=dict)  # "tid.x", "laneid": row
    num_rows: int = 0
    shared: list[Placed] = field(default_factory=list)
    shared_bytes: int = 0
    local_bytes: int = 0
    param_offsets: list[int] = field(default_factory=list)
    param_bytes: int = 0


def lower(
    module: Module, name: str, dynamic_bytes: int, addresses: dict[str, int], operation: Operation
) -> Program:
    """Lowers an entry point, with so many bytes of dynamic shared memory.

    `addresses`: of the module's variables in global memory. `operation` numbers an opcode and
    raises PtxError for one that is unknown.
    """
    return _Lowering(module, module.entry(name), dynamic_bytes, dict(addresses), operation).program


class _Lowering:
    def __init__(
        self,
        module: Module,
        entry: Entry,
        dynamic_bytes: int,
        addresses: dict[str, int],
        operation: Operation,
    ) -> None:
        self.program = Program(entry)
        self._entry, self._operation, self._addresses = entry, operation, addresses
        self._rows: dict[tuple[tuple[int, ...], str], int] = {}
        self._found: dict[tuple[tuple[int, ...], str], int] = {}  # rows by a name as it is written
        self._place_params()
        self._place_shared([*module.variables, *entry.variables], dynamic_bytes)
        self._place_local()
        self.program.code = [self._lowered(each) for each in entry.instructions]
        self.program.num_rows = max(self.program.num_rows, 1)

    def _place_params(self) -> None:
        place = 0
        for param in self._entry.params:
            place = -(-place // param.align) * param.align
            self._addresses[param.name] = place
            self.program.param_offsets.append(place)
            place += param.num_bytes
        self.program.param_bytes = place

    def _place_shared(self, variables: list[Variable], dynamic_bytes: int) -> None:
        place = GAP
        own = [variable for variable in variables if variable.space == "shared"]
        for variable in sorted(own, key=lambda each: each.num_bytes == 0):
            num_bytes = variable.num_bytes or dynamic_bytes
            place = -(-place // max(variable.align, 16)) * max(variable.align, 16)
            self._addresses[variable.name] = place
            self.program.shared.append(Placed(place, num_bytes))
            place += num_bytes + (GAP if variable.num_bytes else 0)
        self.program.shared_bytes = place + GAP

    def _place_local(self) -> None:
        for variable in self._entry.variables:
            if variable.space == "local":
                place = -(-self.program.local_bytes // 16) * 16
                self._addresses[variable.name] = place
                self.program.local_bytes = place + variable.num_bytes

    def _lowered(self, instruction: Instruction) -> list[int]:
        opcode = instruction.opcode
        if opcode.startswith("mov.") and instruction.operands[1] in _CLOCKS:
            opcode = f"clock.{opcode.removeprefix('mov.')}"
            instruction = Instruction(opcode, instruction.operands[:1], "", False, (0,), "")
        operands, inverted = self._operands(instruction)
        if len(operands) > MAX_OPERANDS:
            raise PtxError(f"too many operands: {instruction.text}")
        name = instruction.predicate
        predicate = self._row(instruction.scope, name) if name else -1
        head = [self._operation(opcode), predicate, instruction.negated, inverted, len(operands)]
        return [*head, *operands, *[0] * (MAX_OPERANDS - len(operands))]

    def _operands(self, instruction: Instruction) -> tuple[list[int], int]:
        if instruction.opcode.split(".")[0] == "bra":
            return [self._label(str(instruction.operands[0]))], 0
        found: list[int] = []
        inverted = 0
        for index, operand in enumerate(instruction.operands):
            if isinstance(operand, tuple):
                found += [self._row(instruction.scope, each) for each in operand]
                inverted |= (index == 0 and instruction.opcode.startswith("mov.")) << 30
            elif operand.startswith("["):
                found += self._address(instruction, operand)
            else:
                if operand.startswith("!"):
                    if not instruction.opcode.startswith(_MAY_INVERT):
                        raise PtxError(f"cannot invert an operand of {instruction.text}")
                    inverted |= 1 << len(found)
                found.append(self._row(instruction.scope, operand.removeprefix("!")))
        return found, inverted

    def _label(self, name: str) -> int:
        if name not in self._entry.labels:
            raise PtxError(f"no label {name}")
        return self._entry.labels[name]

    def _address(self, instruction: Instruction, operand: str) -> list[int]:
        match = _ADDRESS.fullmatch(operand)
        if match is None:
            raise PtxError(f"cannot read an address of {instruction.text}")
        offset = immediate(match[2] or "0")
        return [self._row(instruction.scope, match[1]), offset - (offset >> 63 << 64)]

    def _row(self, scope: tuple[int, ...], name: str) -> int:
        if name == "_":
            return self._new_row((scope, f"_{self.program.num_rows}"))
        if (scope, name) not in self._found:
            self._found[scope, name] = self._row_of(scope, name)
        return self._found[scope, name]

    def _row_of(self, scope: tuple[int, ...], name: str) -> int:
        if _SPECIAL.fullmatch(name):
            key = name.removeprefix("%")
            if key not in self.program.specials:
                self.program.specials[key] = self._new_row(((), name))
            return self.program.specials[key]
        if name in self._addresses:
            return self._constant(self._addresses[name])
        if name == "WARP_SZ":
            return self._constant(32)
        if name[0] in "-0123456789":
            return self._constant(immediate(name))
        return self._register(scope, name)

    def _constant(self, value: int) -> int:
        if value not in self.program.constants:
            self.program.constants[value] = self._new_row(((), f"={value}"))
        return self.program.constants[value]

    def _register(self, scope: tuple[int, ...], name: str) -> int:
        family = name.rstrip("0123456789")
        number = name[len(family) :]
        for depth in range(len(scope), 0, -1):
            outer = scope[:depth]
            declared = self._entry.registers
            if declared.get((outer, name)) == 0 or int(number or -1) < declared.get(
                (outer, family), -1
            ):
                key = (outer, name)
                return self._rows[key] if key in self._rows else self._new_row(key)
        raise PtxError(f"register {name} is not declared")

    def _new_row(self, key: tuple[tuple[int, ...], str]) -> int:
        self._rows[key] = self.program.num_rows
        self.program.num_rows += 1
        return self._rows[key]

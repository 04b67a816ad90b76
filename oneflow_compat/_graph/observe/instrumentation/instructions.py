"""The instructions of each Python version that read objects, and the hook that each calls before it runs.

Standard library only. With an unknown instruction or version, nothing is captured (observe/support.py).

To add a Python version:

1. Run tests/graph/guards/observe_programs.py in it. It names the instructions that no table has. Read what
   each does in Python's `Python/bytecodes.c`, and put it into `READS` or `READS_NOTHING`.
2. Add a row to `LAYOUTS`. Compare the stacks of CALL, CALL_FUNCTION_EX, LOAD_ATTR and LOAD_GLOBAL.
3. Run tests/graph/guards in it.
"""

import dis
import opcode
from collections.abc import Sequence
from typing import Any, NamedTuple

from .bytecode import VERSION


class Read(NamedTuple):
    """A reading instruction: the hook to call, and the depths of its operands on the stack, 1 for the top."""

    hook: str
    operands: tuple[Any, ...] = ()
    of_globals: bool = False  # such reads are trusted in code of installed packages


class Layout(NamedTuple):
    """The operands on the stack and the flags in the arguments of instructions, in one Python version."""

    has_copy: bool = True  # COPY and SWAP exist
    has_precall: bool = False  # PRECALL comes before CALL
    callable_first: bool = False  # the callable lies below the NULL of a call, and not above it
    has_null_keywords: bool = False  # CALL_FUNCTION_EX has keywords or NULL on top, instead of a flag
    global_flags: int = 1  # lowest bits of the argument of LOAD_GLOBAL that are flags
    attribute_flags: int = 1  # the same of LOAD_ATTR
    import_flags: int = 0  # the same of IMPORT_NAME, which may be lazy from 3.15 on
    subscript: int | None = None  # the operator of BINARY_OP that is container[key]
    fresh: int = 0  # f_lasti of a frame that has run nothing yet


# The versions whose instructions were checked and whose instrumented code was run.
LAYOUTS = {
    (3, 10): Layout(has_copy=False, global_flags=0, attribute_flags=0, fresh=-1),
    (3, 11): Layout(has_precall=True, attribute_flags=0, fresh=-1),
    (3, 12): Layout(fresh=-1),
    (3, 13): Layout(callable_first=True),
    (3, 14): Layout(callable_first=True, has_null_keywords=True, subscript=26),
    (3, 15): Layout(callable_first=True, has_null_keywords=True, import_flags=2, subscript=26),
}
# An unknown version has no instrumented code, but this module is read there.
LAYOUT = LAYOUTS.get(VERSION, Layout())


CONTENTS_OF_TOP = Read("contents", (1,))
TRUTH_OF_TOP = Read("truth", (1,))
_ELEMENTS_OF_TOP = Read("elements", (1,))
ITEM = Read("item", (2, 1))
_BOTH = Read("operands", (2, 1))
_STORE_ITEM = Read("store_item", (2, 1))
COUNTED = Read("counted", (1,))  # the operator of a counting statement with a computed operand; counting.py

READS = {
    "LOAD_GLOBAL": Read("global_name", of_globals=True),
    "LOAD_NAME": Read("global_name", of_globals=True),
    "LOAD_DEREF": Read("cell"),
    "STORE_DEREF": Read("store_cell"),
    "LOAD_ATTR": Read("attribute", (1,)),
    "LOAD_METHOD": Read("attribute", (1,)),
    "LOAD_SUPER_ATTR": Read("super_attribute", (2, 1)),
    "IMPORT_NAME": Read("import_name", (2,), of_globals=True),
    "IMPORT_FROM": Read("imported", (1,)),
    "STORE_ATTR": Read("store_attribute", (1,)),
    "DELETE_ATTR": Read("store_attribute", (1,)),
    "STORE_GLOBAL": Read("store_global"),
    "DELETE_GLOBAL": Read("store_global"),
    "BINARY_SUBSCR": ITEM,
    "STORE_SUBSCR": _STORE_ITEM,
    "DELETE_SUBSCR": _STORE_ITEM,
    "BINARY_SLICE": Read("contents", (3,)),
    "STORE_SLICE": Read("store_contents", (3,)),
    "CONTAINS_OP": Read("contains", (1, 2)),
    "IS_OP": Read("identity", (2, 1)),
    "COMPARE_OP": Read("comparison", (2, 1)),
    "BINARY_OP": _BOTH,
    **dict.fromkeys(
        [
            "GET_ITER", "GET_YIELD_FROM_ITER", "GET_LEN", "UNPACK_SEQUENCE", "UNPACK_EX", "LIST_EXTEND",
            "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE", "MATCH_MAPPING", "MATCH_SEQUENCE",
        ],
        _ELEMENTS_OF_TOP,
    ),
    **dict.fromkeys(
        [
            "FORMAT_VALUE", "FORMAT_SIMPLE", "CONVERT_VALUE", "UNARY_NEGATIVE", "UNARY_INVERT",
            "UNARY_POSITIVE", "BEFORE_WITH", "SETUP_WITH", "LOAD_SPECIAL",
        ],
        CONTENTS_OF_TOP,
    ),
    "FORMAT_WITH_SPEC": Read("contents", (2,)),
    "MATCH_KEYS": Read("contents", (2,)),
    "CHECK_EXC_MATCH": Read("exception", (2,)),
    "JUMP_IF_NOT_EXC_MATCH": Read("exception", (2,)),
    "MATCH_CLASS": Read("match_class", (3, 2, 1)),
    # jumps test the truth of a value, until 3.13 brought TO_BOOL
    **dict.fromkeys(
        [
            "POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE", "JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP",
            "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_FALSE",
            "POP_JUMP_BACKWARD_IF_TRUE", "TO_BOOL", "UNARY_NOT",
        ],
        TRUTH_OF_TOP,
    ),
    # operands of calls depend on the number of arguments, see instrument.py
    **dict.fromkeys(
        ["CALL", "CALL_KW", "CALL_FUNCTION", "CALL_FUNCTION_KW", "CALL_METHOD"],
        Read("call"),
    ),
    "CALL_FUNCTION_EX": Read("call_unpacked"),
}  # fmt: skip
READS.update(  # 3.10 has an instruction for each operator
    {
        f"{prefix}_{name}": _BOTH
        for prefix in ("BINARY", "INPLACE")
        for name in (
            "ADD", "AND", "FLOOR_DIVIDE", "LSHIFT", "MATRIX_MULTIPLY", "MODULO", "MULTIPLY", "OR", "POWER",
            "RSHIFT", "SUBTRACT", "TRUE_DIVIDE", "XOR",
        )
    }
)  # fmt: skip

HOOK_NAMES = frozenset(read.hook for read in (*READS.values(), COUNTED))
# What LOAD_COMMON_CONSTANT loads: builtins that the compiler compares with a global name; from 3.15 on also
# None and other constants
COMMON_CONSTANTS: Sequence[Any] = getattr(opcode, "_common_constants", ())

# A truth test after one of these tests a bool that was made just now.
MAKES_BOOL = frozenset(["COMPARE_OP", "IS_OP", "CONTAINS_OP", "UNARY_NOT", "TO_BOOL"])

# Instructions that read no object of the program: the stack, local names, constants, jumps, exceptions.
READS_NOTHING = frozenset(
    """
    ASYNC_GEN_WRAP BEFORE_ASYNC_WITH BUILD_CONST_KEY_MAP BUILD_INTERPOLATION BUILD_LIST BUILD_MAP BUILD_SET
    BUILD_SLICE BUILD_STRING BUILD_TEMPLATE BUILD_TUPLE CACHE CALL_INTRINSIC_1 CALL_INTRINSIC_2
    CHECK_EG_MATCH CLEANUP_THROW COPY COPY_DICT_WITHOUT_KEYS COPY_FREE_VARS DELETE_DEREF
    DELETE_FAST DELETE_NAME DUP_TOP DUP_TOP_TWO END_ASYNC_FOR END_FOR END_SEND ENTER_EXECUTOR
    EXIT_INIT_CHECK EXTENDED_ARG FOR_ITER GEN_START GET_AITER GET_ANEXT GET_AWAITABLE
    IMPORT_STAR INTERPRETER_EXIT JUMP JUMP_ABSOLUTE JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_FORWARD
    JUMP_NO_INTERRUPT KW_NAMES LIST_APPEND LIST_TO_TUPLE LOAD_ASSERTION_ERROR
    LOAD_COMMON_CONSTANT LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW LOAD_SMALL_INT NOT_TAKEN POP_ITER
    LOAD_BUILD_CLASS LOAD_CLASSDEREF LOAD_CLOSURE LOAD_CONST LOAD_FAST LOAD_FAST_AND_CLEAR LOAD_FAST_CHECK
    LOAD_FAST_LOAD_FAST LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS LOAD_LOCALS MAKE_CELL
    MAKE_FUNCTION MAP_ADD NOP POP_BLOCK POP_EXCEPT POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE
    POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_TOP
    PRECALL PREP_RERAISE_STAR PRINT_EXPR PUSH_EXC_INFO PUSH_NULL RAISE_VARARGS RERAISE RESERVED RESUME
    RETURN_CONST RETURN_GENERATOR RETURN_VALUE ROT_FOUR ROT_N ROT_THREE ROT_TWO SEND SETUP_ANNOTATIONS
    SETUP_ASYNC_WITH SETUP_CLEANUP SETUP_FINALLY SET_ADD SET_FUNCTION_ATTRIBUTE STORE_FAST
    STORE_FAST_LOAD_FAST STORE_FAST_MAYBE_NULL STORE_FAST_STORE_FAST STORE_NAME SWAP WITH_EXCEPT_START
    TRACE_RECORD YIELD_FROM YIELD_VALUE
    """.split()
)


def unknown_instructions() -> set[str]:
    """Return the names of instructions of the running Python that no table names.

    Those from 256 on are replaced by the compiler, and tools put the INSTRUMENTED_ ones into running code.
    Neither lies in the code of a function.
    """
    names = {name for name, code in dis.opmap.items() if code < 256 and not name.startswith("INSTRUMENTED_")}
    return names - READS.keys() - READS_NOTHING

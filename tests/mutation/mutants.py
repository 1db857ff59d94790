"""The mutants of a module: one small change each, by the operators of Cosmic Ray."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.provider import OperatorProvider

SOURCE = Path("src/synthstream")

Place = tuple[int, int]  # line, column

# Cosmic Ray replaces an operator by every other one: eleven mutants that nearly always die together. One or two of
# them, the nearest, are kept. Annotations are not evaluated; what decorators are given decides
# speed and form alone.
OPERATORS = (
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBinaryOperator_Mul_Div",
    "ReplaceBinaryOperator_Mul_Add",
    "ReplaceBinaryOperator_Div_Mul",
    "ReplaceBinaryOperator_FloorDiv_Mul",
    "ReplaceBinaryOperator_Mod_Mul",
    "ReplaceBinaryOperator_Pow_Mul",
    "ReplaceBinaryOperator_RShift_LShift",
    "ReplaceBinaryOperator_LShift_RShift",
    "ReplaceBinaryOperator_BitAnd_BitOr",
    "ReplaceBinaryOperator_BitOr_BitAnd",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceUnaryOperator_USub_UAdd",
    "ReplaceUnaryOperator_Delete_Not",
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "NumberReplacer",
    "ZeroIterationForLoop",
)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of a module.

    Args:
        module: path below ``src/synthstream``.
        operator, occurrence: which change.
    """

    module: str
    operator: str
    occurrence: int

    def source(self) -> str:
        """The module with the change."""
        text = (SOURCE / self.module).read_text()
        return str(mutate_code(text, OperatorProvider()[self.operator](), self.occurrence))

    def change(self) -> tuple[str, str]:
        """The lines that change, before and after, without their margins."""
        before, after = ((SOURCE / self.module).read_text().splitlines(), self.source().splitlines())
        pairs = [(a.strip(), b.strip()) for a, b in zip(before, after, strict=True) if a != b]
        return " ".join(a for a, _ in pairs), " ".join(b for _, b in pairs)


def mutants_of(module: str) -> list[Mutant]:
    """All mutants of a module, operator by operator."""
    text = (SOURCE / module).read_text()
    annotations, operators = list(_annotations(text)), list(_operators(text))
    nodes = list(ast_nodes(get_ast(text)))
    found, provider = [], OperatorProvider()
    for name in OPERATORS:
        operator = provider[name]()
        positions = [position for node in nodes for position in operator.mutation_positions(node)]
        for occurrence, (start, _) in enumerate(positions):
            if _within(start, annotations) or ("Binary" in name and not _within(start, operators)):
                continue
            found.append(Mutant(module=module, operator=name, occurrence=occurrence))
    return found


def _within(place: Place, spans: list[tuple[Place, Place]]) -> bool:
    return any(begin <= place < end for begin, end in spans)


def _operators(text: str) -> Iterator[tuple[Place, Place]]:
    """Where binary operators stand: what else looks like one separates arguments, or repeats them."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.BinOp):
            left, right = node.left, node.right
            yield (left.end_lineno or 0, left.end_col_offset or 0), (right.lineno, right.col_offset)


def _annotations(text: str) -> Iterator[tuple[Place, Place]]:
    """Where annotations and decorators begin and end."""
    for node in ast.walk(ast.parse(text)):
        for decorator in getattr(node, "decorator_list", ()):
            yield (decorator.lineno, decorator.col_offset), (decorator.end_lineno, decorator.end_col_offset)
        for field in ("annotation", "returns"):
            found = getattr(node, field, None)
            if found is not None:
                yield (found.lineno, found.col_offset), (found.end_lineno, found.end_col_offset)

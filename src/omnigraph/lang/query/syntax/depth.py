"""How large and how deep the expressions of a query are, once the values of `let` are written out.

A value of `let` stands for its expression wherever it is used, so a few lines can spell a text without end; and what
checks, prints and computes an expression calls itself for its parts, so its depth has a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from omnigraph.core.source import MAX_CHAIN, MAX_NESTING
from omnigraph.frozen import frozen
from omnigraph.lang.query.syntax import ast

_CHAINS = (ast.Operator.AND, ast.Operator.OR)
#: What an operator is applied to counts with the operator. Literals of a list are data, as a parameter is.
_LEAVES = (ast.Literal_, ast.Null, ast.Variable, ast.PropertyAccess, ast.SystemField, ast.Alias, ast.MetaName, ast.Star)
_SubExpressions = Callable[[Iterable[ast.Clause]], Iterable[ast.Expression]]


@frozen
class Measure:
    """The size of an expression."""

    parts: int = 0
    #: Operators, calls and branches inside of one another; conditions that one `and` or `or` joins count once.
    depth: int = 0
    #: Conditions that one `and` or `or` joins.
    chain: int = 0

    @property
    def is_too_deep(self) -> bool:
        """Whether nothing could walk through it."""
        return self.depth > MAX_NESTING or self.chain > MAX_CHAIN


@dataclass(slots=True)
class Measuring:
    """Measures the expressions of one query."""

    lets: Mapping[str, ast.Expression]
    #: The expressions of the clauses of a block.
    inside: _SubExpressions
    _known: dict[str, Measure] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)

    def of(self, expression: ast.Expression) -> Measure:
        """The size of an expression with everything in it."""
        parts, depth, chain = 0, 0, 0
        waiting = [(expression, 1, 1)]
        while waiting:
            part, level, joined = waiting.pop()
            parts, depth, chain = parts + (not isinstance(part, _LEAVES)), max(depth, level), max(chain, joined)
            if isinstance(part, ast.Variable) and part.name in self.lets:
                meant = self._of_let(part.name)
                parts, depth, chain = parts + meant.parts, max(depth, level + meant.depth), max(chain, meant.chain)
            if isinstance(part, ast.Binary) and part.operator in _CHAINS:
                left, right = part.left, part.right
                chain = max(chain, joined + 1)
                goes_on = isinstance(left, ast.Binary) and left.operator is part.operator
                waiting.append((left, level, joined + 1) if goes_on else (left, level + 1, 1))
                waiting.append((right, level + 1, 1))
                continue
            waiting.extend((inner, level + 1, 1) for inner in ast.parts(part))
            waiting.extend((inner, level + 1, 1) for inner in self.inside(ast.block_of(part)))
        return Measure(parts, depth, chain)

    def _of_let(self, name: str) -> Measure:
        if name not in self._known:
            if name in self._open:
                # A circle, which is reported as such.
                return Measure()
            if len(self._open) > MAX_NESTING:
                return Measure(depth=MAX_NESTING + 1)
            self._open.add(name)
            self._known[name] = self.of(self.lets[name])
            self._open.discard(name)
        return self._known[name]

"""What the two language compilers share: source texts, places in them, and friendly syntax errors.

Owns: reading a source file safely, turning an offset into file, line, column and a caret excerpt, running a lark
grammar so that every broken declaration of a file is reported, and "did you mean". Never knows a language.
Start reading at `source`, then `parsing`.
"""

from omnigraph.syntax.limits import MAX_NESTING, MAX_PARTS, MAX_PATTERNS, MAX_SOURCE_BYTES
from omnigraph.syntax.parsing import DeclarationGrammar
from omnigraph.syntax.source import (
    Findings,
    SourceText,
    Span,
    read_source,
    span_field,
)
from omnigraph.syntax.strings import EscapeFailure, unescape
from omnigraph.syntax.suggest import did_you_mean, one_of

__all__ = [
    "MAX_NESTING",
    "MAX_PARTS",
    "MAX_PATTERNS",
    "MAX_SOURCE_BYTES",
    "DeclarationGrammar",
    "EscapeFailure",
    "Findings",
    "SourceText",
    "Span",
    "did_you_mean",
    "one_of",
    "read_source",
    "span_field",
    "unescape",
]

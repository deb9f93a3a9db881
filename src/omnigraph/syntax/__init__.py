"""What the two language compilers share: source texts, places in them, and friendly syntax errors.

Owns: reading a source file safely, turning an offset into file, line, column and a caret excerpt, running a lark
grammar so that every broken declaration of a file is reported, and "did you mean". Never knows a language.
Start reading at `source`, then `parsing`.
"""

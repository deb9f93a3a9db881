"""The interactive shell: commands and texts of queries at a prompt, or from standard input.

Owns: where a typed text ends, what runs it, the commands that begin with a dot, and the prompt, which alone imports
prompt_toolkit. Texts run as `omnigraph query` and `omnigraph mutate` run them.
"""

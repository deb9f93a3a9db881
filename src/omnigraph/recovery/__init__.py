"""The commit protocol and its recovery: a write happens as a whole, also when its process dies.

Owns: sidecars, phases A to D, the commit lock, settling of interrupted writes, the audit of recovery. Never decides
what a write contains. Start reading at `attempt`, then `classify` and `sweep`.
"""

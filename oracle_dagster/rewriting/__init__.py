"""Rewording of theses by a local language model: which agent, at what price, over which wire.

Wording only. What may be said is decided in ``oracle_core.rewrite``; nothing here can change a decision, and
nothing here may make a cycle fail. Prompts and answers are never logged or stored, except an answer that
passed every check, which becomes the thesis.
"""

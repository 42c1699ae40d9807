"""Why a decision is what it is: gathered from what its cycle read, and shown to people.

Everything is computed again by the pipeline's own code from the recorded inputs and compared with what is
stored; nothing is written. What a decision is made of belongs in ``oracle_core.explanation``.
"""

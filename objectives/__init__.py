"""What runs in a child process: objectives, knobs, the trial itself and how it is measured.

This package knows no Optuna, no SQL and no screens. It runs as it is on a training machine that has torch and
transformers and nothing else of Tightfit. ``contract``, ``config``, ``knobs``, ``trial.protocol`` and
``trial.outcome`` import without torch; the worker, the command line and the screens import only those.
"""

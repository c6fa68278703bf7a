"""A user's training script as objective (``kind: script``): started as it stands, seen from inside, stopped in time.

    settings -> template (a closed little grammar) -> command, environment, patched copy of a configuration file
    command  -> start -> the script, with ``inside/`` on its PYTHONPATH -> a line of steps -> ledger -> measurement

``inside/`` is the only thing of ours the script's interpreter ever loads. Everything else here is torch-free.
"""

"""What a script's own interpreter loads of ours: this folder stands on its PYTHONPATH, and nothing else does.

It holds one module of a name nobody else has (``_tightfit_watch``) and the ``sitecustomize`` that loads it and then the
one that would have been loaded. All of it is standard library, and runs on older Pythons and torches than ours.
"""

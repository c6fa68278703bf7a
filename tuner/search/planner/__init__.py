"""The search engine: what is worth running next, from the physics of training and what has been measured. Pure numpy.

It works on plain mappings (knob -> value), so that knobs nobody has seen before work as well, and knows no Optuna.
``candidates`` holds the configurations in arrays, ``priors`` what is believed before any run, ``effects`` the one
model behind everything that is learned, ``cost_model`` throughput and the seconds of a run, ``memory`` what fits,
``faults`` what runs at all, ``gain`` what a run may bring, and ``planner`` puts them together.
"""

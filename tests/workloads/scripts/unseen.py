"""Trains without any optimizer of torch's; with ``--report`` it says so in the two lines that help."""

import sys
import time

weight = 0.0
for _ in range(400):
    weight += 0.1 * (1 - weight)
    time.sleep(0.01)
    if "--report" in sys.argv:
        import tuner

        tuner.report_step(samples=4, accumulation_steps=2, precision="fp32")

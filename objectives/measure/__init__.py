"""What a run is measured with: step times, memory, energy, FLOPs, and the machine they belong to."""

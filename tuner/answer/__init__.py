"""What comes out of a study: the confirmation, the verdict and the summary. Pure."""

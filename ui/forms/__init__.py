"""What stands behind the page of a new study: its fields, the YAML, what is wrong with it, what it will take."""

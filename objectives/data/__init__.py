"""What trials read: text, JSON lines, Parquet, memory-mapped tokens, pictures; and which samples make which batch."""

"""What a worker does: start children, listen, judge, store; one study from preparation to confirmation."""

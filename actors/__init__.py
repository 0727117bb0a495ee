"""One file a queue; importing an actor imports nothing of its work, so a web process pays little to call `.send`."""

"""One file a janitor: file name, actor name and log event are the same word."""

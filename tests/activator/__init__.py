"""The activator: its queue and its parts on driven clocks, and the whole of it with real sockets and processes."""

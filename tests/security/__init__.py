"""What somebody on the network can do and learn who should not."""

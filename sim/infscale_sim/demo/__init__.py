"""`infscale demo`: the whole loop on one machine (`loop`), and a recorded engine beside its sidecar (`replay`)."""

"""What infscale publishes: the contract (`catalogue`), one replica's values, its page."""

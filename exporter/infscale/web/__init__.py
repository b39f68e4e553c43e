"""The HTTP server of the sidecar and the recommender: listeners, routes, web config file, landing page, stop order."""

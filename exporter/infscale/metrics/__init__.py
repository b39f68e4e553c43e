"""What infscale publishes: the contract (`catalogue`), the values of a replica and of a workload, their pages."""

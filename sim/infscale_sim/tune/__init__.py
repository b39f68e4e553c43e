"""The search for a policy: the fewest replica-minutes within a budget of misses. `infscale tune` calls it.

    cases       the traffic to search on, and other traffic of the same kind to check the result on
    space       what is searched: axes of values, and the text of a policy for each combination
    trial       one policy on all cases, given up as soon as another is as good at less for certain
    workers     many trials, in this process or in several
    search      a coarse grid, then refinement around the best
    plot        the frontier as a table and as a small picture in text
    manifests   the policy as a ScaledObject and an HPA, and what those cannot say

Nothing in a result depends on a clock or on the number of workers.
"""

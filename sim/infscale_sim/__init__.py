"""The simulator: it prices a scaling policy with the decision core before the policy runs."""

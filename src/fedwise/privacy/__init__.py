"""Privacy: noise scales, what noise costs, and samplers of noise. Mathematics only."""

"""Alert rules: the contract, the kinds, and the table with the default rules."""

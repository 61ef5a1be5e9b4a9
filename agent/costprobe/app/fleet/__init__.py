"""Questions over all hosts: state, spend and unit costs, from the fleet's database."""

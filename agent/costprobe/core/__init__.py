"""Records, the series schema, line protocol, units and clocks: what every layer shares."""

"""Words that every room shares: records, the series schema, units, periods, money and clocks.

Answers: what a point, a device, a reading, an event and an incident are; which measurements, tags
and fields exist and how they add up; how time, money and text from outside are written.
Reads: nothing but what it is given. The clocks are in `clock`, and `outside` parses bounded text.
Writes: nothing.

Open `records` first, then `schema`: every number of the product is one of its fields. `slo` has the
counts of a service level. `config/` has the types of configuration values, and the loader that
reports all errors at once. It imports the standard library and pydantic, and no other room.
"""

"""Redfish: the power and the energy of a whole server, from its BMC or from a PDU."""

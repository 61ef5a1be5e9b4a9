"""Which instance of a cloud this host is: from its DMI tables, and the cloud's metadata service."""

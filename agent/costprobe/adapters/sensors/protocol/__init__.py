"""Messages between the sensor child and its supervisor."""

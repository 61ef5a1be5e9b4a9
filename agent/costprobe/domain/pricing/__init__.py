"""What a device-second costs under the operator's plans."""

"""The kinds of rule, a file each: rows and events in, symptoms out."""

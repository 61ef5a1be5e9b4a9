"""The SQLite file with every row, committed before it is sent: writing, reading, roll-up, cursors."""

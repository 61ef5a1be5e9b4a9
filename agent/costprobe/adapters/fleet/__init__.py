"""Questions about all hosts to the database that they push to, or that scrapes them."""

"""From device-seconds, joules and prices to money per inference."""

"""Rules over the series, and the incidents they find."""

"""Model sources: where the model of a probe comes from; `kinds` is their table, without torch."""

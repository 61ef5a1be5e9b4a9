"""Right-sizing hints: what would cost less, with the evidence and the saving in money per month."""

"""The reference pages of the documentation, made from the code that they describe."""

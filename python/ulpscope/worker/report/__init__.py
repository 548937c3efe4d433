"""The page that shows the answer of a search: one HTML file that holds all it needs."""

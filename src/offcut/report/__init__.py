"""Tables, figures and one-file HTML for people to look at."""

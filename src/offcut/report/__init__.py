"""Tables, figures and one-file HTML: what people look at afterwards."""

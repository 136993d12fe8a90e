"""Tables and curves of many results side by side."""

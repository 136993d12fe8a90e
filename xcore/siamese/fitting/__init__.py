"""Training of SiameseXML by torch."""

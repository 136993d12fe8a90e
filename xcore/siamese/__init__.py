"""SiameseXML (Dahiya et al., ICML 2021): one encoder for rows and label texts, then a classifier for each label."""

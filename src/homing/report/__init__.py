"""Reports on runs: pages, figures and tables, written once or served live."""

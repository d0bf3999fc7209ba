"""The report page: one HTML file about runs and experiments, written once or served while runs are going on."""

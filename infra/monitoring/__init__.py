"""Alarms, their topic and the dashboard, over the metrics of AWS services and of the functions."""

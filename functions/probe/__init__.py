"""The probe function."""

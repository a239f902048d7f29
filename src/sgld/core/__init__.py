"""Errors of user code, progress, files, pytrees, devices and versions of other libraries."""

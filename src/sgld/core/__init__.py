"""Errors of user functions, progress, files, pytrees, devices and versions of other libraries."""

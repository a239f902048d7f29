"""Errors of user code, progress, files, pytrees, devices and the compilation cache."""

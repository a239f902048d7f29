"""What a notebook shows of a run: views in HTML, and figures."""

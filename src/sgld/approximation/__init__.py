"""What is known of a posterior near its centre: mode, curvature, noise of the rows, propriety."""

"""What every service shares of HTTP: the application, its connections, problems and the client."""

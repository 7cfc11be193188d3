"""What services share of HTTP: application, routes, OpenAPI, connections, problems, client."""

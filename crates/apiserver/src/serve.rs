//! Sockets and TLS in front of the service.
